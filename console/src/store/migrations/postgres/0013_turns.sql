CREATE TABLE turns (
    workspace_id TEXT PRIMARY KEY REFERENCES workspaces (id) ON DELETE CASCADE,
    turn BIGINT NOT NULL
);
CREATE INDEX queue_by_turn ON queue (workspace_id, state, ready_at, run_id);
