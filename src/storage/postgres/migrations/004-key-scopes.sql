-- The scopes of API keys are in a table of their own. A new column of keys would change the row type that find_key and list_keys
-- return, and PostgreSQL then rejects the prepared statements of older replicas. A key without a row has the scope write.
CREATE TABLE todo_service.key_scopes (
  key_id text PRIMARY KEY REFERENCES todo_service.keys (id) ON DELETE CASCADE, scope text NOT NULL
);

CREATE FUNCTION todo_service.find_scoped_key(hash bytea)
RETURNS TABLE (
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT k.id, k.name, k.token_hash, k.created_at, k.expires_at, k.last_used_at, k.lifetime, coalesce(s.scope, 'write')
    FROM todo_service.keys k LEFT JOIN todo_service.key_scopes s ON s.key_id = k.id WHERE k.token_hash = hash;
END
$$;

CREATE FUNCTION todo_service.list_scoped_keys()
RETURNS TABLE (
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT k.id, k.name, k.token_hash, k.created_at, k.expires_at, k.last_used_at, k.lifetime, coalesce(s.scope, 'write')
    FROM todo_service.keys k LEFT JOIN todo_service.key_scopes s ON s.key_id = k.id ORDER BY k.created_at, k.added;
END
$$;

-- Stores the scope of a key. The key must exist and have no stored scope.
CREATE FUNCTION todo_service.set_key_scope(id text, scope text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF scope <> 'write' THEN
    INSERT INTO todo_service.key_scopes VALUES (id, scope);
  END IF;
END
$$;

-- Does what insert_key does, and stores the scope.
CREATE FUNCTION todo_service.insert_scoped_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint,
  expired_before bigint, scope text
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT todo_service.insert_key(id, name, token_hash, created_at, expires_at, last_used_at, lifetime, expired_before) THEN
    RETURN false;
  END IF;
  PERFORM todo_service.set_key_scope(id, scope);
  RETURN true;
END
$$;

-- Does what replace_key did before, and stores the scope of the successor.
CREATE FUNCTION todo_service.replace_scoped_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint,
  expired_before bigint, scope text,
  replaced text, ends_at bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE todo_service.keys IN SHARE ROW EXCLUSIVE MODE;
  UPDATE todo_service.keys k SET expires_at = least(k.expires_at, ends_at)
    WHERE k.name = (SELECT r.name FROM todo_service.keys r WHERE r.id = replaced);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO todo_service.keys VALUES (id, name, token_hash, created_at, expires_at, last_used_at, lifetime);
  PERFORM todo_service.set_key_scope(id, scope);
  DELETE FROM todo_service.keys k
    WHERE k.expires_at <= least(expired_before, todo_service.clock_ms() - 2592000000);
  RETURN true;
END
$$;

-- Older replicas call this function. The successor gets the scope of the newest key of the name.
CREATE OR REPLACE FUNCTION todo_service.replace_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint,
  expired_before bigint,
  replaced text, ends_at bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  newest_scope text;
BEGIN
  LOCK TABLE todo_service.keys IN SHARE ROW EXCLUSIVE MODE;
  SELECT coalesce(s.scope, 'write') INTO newest_scope
    FROM todo_service.keys k LEFT JOIN todo_service.key_scopes s ON s.key_id = k.id
    WHERE k.name = (SELECT r.name FROM todo_service.keys r WHERE r.id = replaced)
    ORDER BY k.created_at DESC, k.added DESC LIMIT 1;
  RETURN todo_service.replace_scoped_key(
    id, name, token_hash, created_at, expires_at, last_used_at, lifetime, expired_before, coalesce(newest_scope, 'write'),
    replaced, ends_at
  );
END
$$;

CREATE FUNCTION todo_service.import_scoped_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM todo_service.import_key(id, name, token_hash, created_at, expires_at, last_used_at, lifetime);
  PERFORM todo_service.set_key_scope(id, scope);
END
$$;
