CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX events_by_topic ON events (topic, seq);
CREATE INDEX events_by_age ON events (at);
