CREATE TABLE denied_names (
    job_id TEXT NOT NULL,
    name TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    PRIMARY KEY (job_id, name)
);
