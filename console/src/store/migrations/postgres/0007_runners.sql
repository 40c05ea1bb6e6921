CREATE TABLE runners (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    workspace_id TEXT REFERENCES workspaces (id),
    digest BYTEA NOT NULL UNIQUE,
    public_key TEXT,
    session TEXT,
    version TEXT,
    facts TEXT,
    most BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    seen_at BIGINT
);
