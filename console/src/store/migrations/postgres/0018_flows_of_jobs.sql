ALTER TABLE flows ADD COLUMN job_id TEXT;
UPDATE flows SET job_id = (SELECT r.job_id FROM runs r WHERE r.id = flows.run_id);
CREATE INDEX flows_by_job ON flows (job_id, at);
