CREATE TABLE replays (
    actor TEXT NOT NULL,
    key BLOB NOT NULL,
    request BLOB NOT NULL,
    claim TEXT NOT NULL,
    changed BOOLEAN NOT NULL,
    status BIGINT,
    head TEXT,
    body BLOB,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
);
CREATE INDEX replays_by_age ON replays (created_at);
