ALTER TABLE identities ADD COLUMN asked_at BIGINT NOT NULL DEFAULT 0;
DROP INDEX identities_by_age;
CREATE INDEX identities_by_turn ON identities (asked_at);
CREATE INDEX identities_by_user ON identities (user_id, checked_at);
