ALTER TABLE codes ADD COLUMN network TEXT NOT NULL DEFAULT '';
CREATE INDEX codes_by_network ON codes (state, network, address, created_at);
CREATE INDEX codes_by_end ON codes (expires_at);
DROP INDEX identities_by_turn;
CREATE INDEX identities_by_provider ON identities (provider, asked_at);
