CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    next_at BIGINT,
    hook BYTEA UNIQUE,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version BIGINT NOT NULL,
    UNIQUE (workspace_id, name)
);
CREATE INDEX jobs_by_workspace ON jobs (workspace_id, id);
CREATE INDEX jobs_by_slot ON jobs (next_at);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    job_id TEXT,
    job_name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    message TEXT,
    exit_code BIGINT,
    cause TEXT NOT NULL,
    caused_by TEXT,
    slot BIGINT,
    attempt BIGINT NOT NULL,
    retry_of TEXT,
    spec TEXT NOT NULL,
    input BYTEA,
    runner_id TEXT,
    fence BIGINT NOT NULL,
    queued_at BIGINT NOT NULL,
    claimed_at BIGINT,
    started_at BIGINT,
    ended_at BIGINT,
    facts TEXT,
    output_bytes BIGINT NOT NULL,
    output_kept BIGINT NOT NULL,
    flows_kept BIGINT NOT NULL,
    flows_dropped BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    up BIGINT NOT NULL,
    down BIGINT NOT NULL,
    UNIQUE (job_id, slot)
);
CREATE INDEX runs_by_workspace ON runs (workspace_id, id);
CREATE INDEX runs_by_state ON runs (workspace_id, state, id);
CREATE INDEX runs_by_job ON runs (job_id, id);
CREATE INDEX runs_by_end ON runs (ended_at);
CREATE TABLE queue (
    run_id TEXT PRIMARY KEY REFERENCES runs (id),
    workspace_id TEXT NOT NULL,
    lane TEXT NOT NULL,
    lane_most BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    state TEXT NOT NULL,
    runner_id TEXT NOT NULL,
    fence BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    claims BIGINT NOT NULL,
    cancel_at BIGINT,
    output_next BIGINT NOT NULL,
    output_kept BIGINT NOT NULL,
    output_rows BIGINT NOT NULL,
    flow_seq BIGINT NOT NULL,
    flows_kept BIGINT NOT NULL,
    flows_dropped BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    up BIGINT NOT NULL,
    down BIGINT NOT NULL,
    step_seq BIGINT NOT NULL,
    steps_kept BIGINT NOT NULL
);
CREATE INDEX queue_by_ready ON queue (state, ready_at, run_id);
CREATE INDEX queue_by_lane ON queue (lane, state);
CREATE INDEX queue_by_workspace ON queue (workspace_id, state);
CREATE INDEX queue_by_runner ON queue (runner_id, state);
CREATE INDEX queue_by_lease ON queue (lease_until);
CREATE TABLE run_output (
    run_id TEXT NOT NULL REFERENCES runs (id),
    starts BIGINT NOT NULL,
    stream TEXT NOT NULL,
    data BYTEA NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (run_id, starts)
);
CREATE TABLE run_steps (
    run_id TEXT NOT NULL REFERENCES runs (id),
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE TABLE flows (
    run_id TEXT NOT NULL REFERENCES runs (id),
    seq BIGINT NOT NULL,
    workspace_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    flow BIGINT,
    is_open BOOLEAN NOT NULL,
    door TEXT NOT NULL,
    protocol TEXT NOT NULL,
    name TEXT,
    address TEXT,
    port BIGINT NOT NULL,
    upstream TEXT,
    class TEXT,
    http TEXT,
    up BIGINT NOT NULL,
    down BIGINT NOT NULL,
    duration_ms BIGINT,
    ending TEXT,
    reason TEXT,
    policy TEXT,
    layer TEXT,
    file TEXT,
    line BIGINT,
    commit_id TEXT,
    times BIGINT NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX flows_by_flow ON flows (run_id, flow);
CREATE INDEX flows_by_time ON flows (workspace_id, at);
CREATE TABLE flow_rates (
    workspace_id TEXT NOT NULL,
    starts BIGINT NOT NULL,
    permitted BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    up BIGINT NOT NULL,
    down BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, starts)
);
