ALTER TABLE runners ADD COLUMN refused_key TEXT;
ALTER TABLE runners ADD COLUMN refused_at BIGINT;
