CREATE TABLE notifications (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    topics TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX notifications_by_workspace ON notifications (workspace_id, id);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    notification_id TEXT NOT NULL REFERENCES notifications (id) ON DELETE CASCADE,
    topic TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX deliveries_by_due ON deliveries (state, next_at);
CREATE INDEX deliveries_by_notification ON deliveries (notification_id, id);
CREATE TABLE notified (
    id TEXT PRIMARY KEY,
    seq BIGINT NOT NULL
);
