-- API keys have their kind and their parent in columns: the key with which they were made, or the user or the client without one.
ALTER TABLE todo_service.keys
  ADD kind text NOT NULL DEFAULT 'client', ADD owner_kind text, ADD owner_name text, ADD owner_hash text;
-- The text was key:ID, user:HASH:NAME or client:HASH:NAME, and a link had "code:" before it.
UPDATE todo_service.keys k SET
  kind = CASE WHEN k.parent LIKE 'code:%' THEN 'link' ELSE 'device' END,
  parent = CASE WHEN p.owner[1] IS NULL THEN regexp_replace(k.parent, '^(code:)?key:', '') END,
  owner_kind = p.owner[1], owner_hash = p.owner[2], owner_name = p.owner[3]
FROM (
  SELECT id, regexp_match(parent, '^(?:code:)?(user|client):([^:]*):(.*)$') AS owner FROM todo_service.keys
) p
WHERE p.id = k.id AND k.parent IS NOT NULL;
