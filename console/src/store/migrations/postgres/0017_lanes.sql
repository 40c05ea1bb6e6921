CREATE TABLE lanes (
    lane TEXT NOT NULL,
    most BIGINT NOT NULL,
    workspace_id TEXT NOT NULL,
    live BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    head TEXT NOT NULL,
    PRIMARY KEY (lane, most)
);
CREATE INDEX lanes_open ON lanes (workspace_id, ready_at, head) WHERE live < most;
CREATE INDEX queue_by_head ON queue (lane, lane_most, state, ready_at, run_id);
INSERT INTO lanes (lane, most, workspace_id, live, ready_at, head)
    SELECT q.lane, q.lane_most, q.workspace_id,
        (SELECT count(*) FROM queue l WHERE l.lane = q.lane AND l.state IN ('claimed', 'preparing', 'running')),
        q.ready_at, q.run_id
    FROM queue q WHERE q.state = 'queued' AND q.run_id = (SELECT h.run_id FROM queue h WHERE h.lane = q.lane
        AND h.lane_most = q.lane_most AND h.state = 'queued' ORDER BY h.ready_at, h.run_id LIMIT 1);
CREATE FUNCTION keep_lane() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$ DECLARE q queue%ROWTYPE; BEGIN IF TG_OP = 'DELETE' THEN q := OLD; ELSE q := NEW; END IF; DELETE FROM lanes WHERE lane = q.lane AND most = q.lane_most; INSERT INTO lanes (lane, most, workspace_id, live, ready_at, head) SELECT lane, lane_most, workspace_id, 0, ready_at, run_id FROM queue WHERE lane = q.lane AND lane_most = q.lane_most AND state = 'queued' ORDER BY ready_at, run_id LIMIT 1; UPDATE lanes SET live = (SELECT count(*) FROM queue WHERE lane = q.lane AND state IN ('claimed', 'preparing', 'running')) WHERE lane = q.lane; RETURN NULL; END $$;
CREATE TRIGGER lanes_enter AFTER INSERT ON queue FOR EACH ROW EXECUTE FUNCTION keep_lane();
CREATE TRIGGER lanes_change AFTER UPDATE OF state ON queue FOR EACH ROW EXECUTE FUNCTION keep_lane();
CREATE TRIGGER lanes_leave AFTER DELETE ON queue FOR EACH ROW EXECUTE FUNCTION keep_lane();
