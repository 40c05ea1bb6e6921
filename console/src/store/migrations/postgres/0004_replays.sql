CREATE TABLE replays (
    actor TEXT NOT NULL,
    key BYTEA NOT NULL,
    request BYTEA NOT NULL,
    claim TEXT NOT NULL,
    changed BOOLEAN NOT NULL,
    status BIGINT,
    head TEXT,
    body BYTEA,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX replays_by_age ON replays (created_at);
