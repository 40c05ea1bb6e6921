CREATE TABLE keyring (
    id TEXT PRIMARY KEY,
    current BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE sealed (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    key_id TEXT NOT NULL REFERENCES keyring (id),
    wrapped BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX sealed_by_key ON sealed (key_id);
CREATE TABLE secrets (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    hosts TEXT NOT NULL,
    version BIGINT NOT NULL,
    value_version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    used_at BIGINT,
    UNIQUE (workspace_id, name)
);
