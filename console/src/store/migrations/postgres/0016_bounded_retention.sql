CREATE INDEX deliveries_by_age ON deliveries (created_at);
CREATE INDEX flow_rates_by_time ON flow_rates (starts);
CREATE INDEX sessions_by_end ON sessions (expires_at);
CREATE INDEX tokens_by_end ON tokens (expires_at);
CREATE INDEX attempts_by_age ON attempts (at);
CREATE INDEX sign_ins_by_end ON sign_ins (expires_at);
