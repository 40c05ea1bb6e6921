CREATE TABLE sign_ins (
    state BYTEA PRIMARY KEY,
    browser BYTEA NOT NULL,
    provider TEXT NOT NULL,
    nonce TEXT NOT NULL,
    verifier TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE TABLE identities (
    id TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    subject TEXT NOT NULL,
    login TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id),
    tokens BIGINT NOT NULL,
    checked_at BIGINT NOT NULL,
    UNIQUE (provider, subject)
);
CREATE INDEX identities_by_age ON identities (checked_at);
