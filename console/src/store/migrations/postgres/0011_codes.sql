CREATE TABLE codes (
    id TEXT PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    digest BYTEA NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    days BIGINT,
    address TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX codes_by_address ON codes (address, expires_at);
