-- A role needs only USAGE on the schema and EXECUTE on its functions. Therefore every access has a function that runs with
-- the rights of the schema's owner (SECURITY DEFINER) and with a fixed search_path. The functions use the clock of the
-- database, because replicas may have wrong clocks.

-- The number of applied migrations.
CREATE TABLE todo_service.format (version bigint NOT NULL);
INSERT INTO todo_service.format VALUES (0);
-- A title is stored as its JSON string, so it can contain U+0000 and is encoded only once.
CREATE TABLE todo_service.todos (id bigint PRIMARY KEY, title text NOT NULL, done boolean NOT NULL);
-- A row has all events of a batch, one event per line.
CREATE TABLE todo_service.events (last_n bigint PRIMARY KEY, events text NOT NULL);
CREATE TABLE todo_service.receipts (
  key_hash text PRIMARY KEY, title_hash text NOT NULL, id bigint NOT NULL, made_at bigint NOT NULL
);
CREATE INDEX receipts_by_age ON todo_service.receipts (made_at);
CREATE TABLE todo_service.keys (
  id text PRIMARY KEY, name text NOT NULL, token_hash bytea NOT NULL UNIQUE,
  created_at bigint NOT NULL, expires_at bigint, last_used_at bigint, lifetime bigint, scope text NOT NULL,
  added bigint GENERATED ALWAYS AS IDENTITY
);
-- The table has one row. Each write locks it, so ids and positions have no gaps and follow the order of commits.
CREATE TABLE todo_service.store (
  epoch text NOT NULL, last_id bigint NOT NULL, n bigint NOT NULL, todos bigint NOT NULL, receipts bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO todo_service.store
  VALUES (left(replace(gen_random_uuid()::text, '-', ''), 16), 0, 0, 0, 0);

-- PostgreSQL puts this function in line, which takes a third of the time, because all of it is immutable. bigint || text is
-- not.
CREATE FUNCTION todo_service.todo_json(id bigint, title text, done boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT '{"id":' || id::text || ',"title":' || title || ',"done":' || CASE WHEN done THEN 'true}' ELSE 'false}' END
$$;

-- Returns the time in milliseconds since 1970.
CREATE FUNCTION todo_service.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION todo_service.format_version() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT f.version FROM todo_service.format f);
END
$$;

-- Returns the position of the store, and the events after a sequence number. The epoch contains the table's oid and the
-- server's timeline, because a promoted standby or a restored dump may lack writes that clients have seen. PL/pgSQL keeps
-- its query plans.
CREATE FUNCTION todo_service.tail(after_n bigint, OUT epoch text, OUT n bigint, OUT tail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.epoch || lpad(to_hex('todo_service.store'::regclass::oid::bigint), 8, '0')
           || ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0'), s.n
  INTO STRICT epoch, n FROM todo_service.store s;
  IF n > after_n THEN
    SELECT string_agg(e.events, E'\n' ORDER BY e.last_n) INTO tail FROM todo_service.events e WHERE e.last_n > after_n;
  END IF;
END
$$;

-- Returns what tail returns, with as many of the latest events as requested.
CREATE FUNCTION todo_service.latest(max_events bigint, OUT epoch text, OUT n bigint, OUT tail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT t.epoch, t.n, t.tail INTO STRICT epoch, n, tail
  FROM todo_service.store s, todo_service.tail(s.n - max_events) t;
END
$$;

-- Returns the next to-dos after an id, by ascending id.
CREATE FUNCTION todo_service.todos_after(after_id bigint, max_rows bigint) RETURNS TABLE (id bigint, todo text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT t.id, todo_service.todo_json(t.id, t.title, t.done) FROM todo_service.todos t
    WHERE t.id > after_id ORDER BY t.id LIMIT max_rows;
END
$$;

-- Returns the greatest assigned id and the number of to-dos.
CREATE FUNCTION todo_service.totals(OUT last_id bigint, OUT todos bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.last_id, s.todos INTO STRICT last_id, todos FROM todo_service.store s;
END
$$;

-- Applies a batch of writes. Each list has one line per write and is NULL if it is empty. Returns one line per write: for
-- an insert the new id, or -1 if the key created another to-do, -2 if the store is full, -3 if no id is left; for an update
-- the to-do, or an empty line if it does not exist; for a deletion whether the to-do existed. Also returns the number of
-- idempotency keys that it evicted because no more fit, and what tail returns.
CREATE FUNCTION todo_service.write(
  after_n bigint, max_todos bigint, max_events bigint,
  titles text, key_hashes text, title_hashes text,
  update_ids text, update_dones text, delete_ids text,
  OUT made text, OUT updated text, OUT deleted text, OUT evicted bigint, OUT epoch text, OUT n bigint, OUT tail text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s todo_service.store%ROWTYPE;
  lines text[] := '{}';
  fresh text[];
  amount bigint;
  created_at bigint;
BEGIN
  SELECT * INTO STRICT s FROM todo_service.store FOR UPDATE;
  created_at := todo_service.clock_ms();
  evicted := 0;

  IF titles IS NOT NULL THEN
    IF key_hashes ~ '[^\n]' THEN
      DELETE FROM todo_service.receipts WHERE made_at <= created_at - 86400000;
      GET DIAGNOSTICS amount = ROW_COUNT;
      IF amount > 0 THEN
        UPDATE todo_service.store SET receipts = receipts - amount RETURNING * INTO s;
      END IF;
    END IF;
    WITH given AS (
      SELECT g.ord, g.title, nullif(g.key_hash, '') AS key_hash, g.title_hash
      FROM unnest(string_to_array(titles, E'\n'), string_to_array(key_hashes, E'\n'),
                  string_to_array(title_hashes, E'\n')) WITH ORDINALITY AS g (title, key_hash, title_hash, ord)
    ), known AS (
      SELECT g.*, r.id AS known_id, r.title_hash AS known_title
      FROM given g LEFT JOIN todo_service.receipts r ON r.key_hash = g.key_hash
    ), counted AS (
      SELECT *, count(*) FILTER (WHERE known_id IS NULL) OVER (ORDER BY ord) AS nth FROM known
    ), placed AS (
      SELECT *, CASE
        WHEN known_title = title_hash THEN known_id
        WHEN known_id IS NOT NULL THEN -1
        WHEN s.todos + nth > max_todos THEN -2
        WHEN s.last_id > 9223372036854775807 - nth THEN -3
        ELSE s.last_id + nth
      END AS placed_id FROM counted
    ), new AS (
      SELECT * FROM placed WHERE known_id IS NULL AND placed_id > 0
    ), stored AS (
      INSERT INTO todo_service.todos SELECT placed_id, title, false FROM new
    ), receipted AS (
      INSERT INTO todo_service.receipts SELECT key_hash, title_hash, placed_id, created_at FROM new WHERE key_hash IS NOT NULL
    )
    SELECT (SELECT string_agg(placed_id::text, E'\n' ORDER BY ord) FROM placed),
           array_agg('+' || todo_service.todo_json(placed_id, title, false) ORDER BY ord), count(key_hash)
    INTO made, fresh, amount FROM new;
    lines := coalesce(fresh, '{}');
    s.last_id := s.last_id + cardinality(lines);
    s.todos := s.todos + cardinality(lines);
    s.receipts := s.receipts + amount;
    IF amount > 0 AND s.receipts > max_todos THEN
      -- No other transaction changes a ctid meanwhile, because this one holds the row of store.
      DELETE FROM todo_service.receipts WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM todo_service.receipts ORDER BY made_at, id LIMIT s.receipts - max_todos
      ));
      GET DIAGNOSTICS evicted = ROW_COUNT;
      s.receipts := s.receipts - evicted;
    END IF;
  END IF;

  IF update_ids IS NOT NULL THEN
    WITH given AS (
      SELECT * FROM unnest(string_to_array(update_ids, E'\n')::bigint[], string_to_array(update_dones, E'\n')::boolean[])
        WITH ORDINALITY AS g (id, done, ord)
    ), found AS (
      SELECT g.ord, g.id, g.done, t.done AS was, todo_service.todo_json(t.id, t.title, g.done) AS json
      FROM given g LEFT JOIN todo_service.todos t ON t.id = g.id
    ), changed AS (
      UPDATE todo_service.todos t SET done = f.done FROM found f WHERE t.id = f.id AND f.was <> f.done
    )
    SELECT string_agg(coalesce(json, ''), E'\n' ORDER BY ord),
           array_agg('=' || json ORDER BY ord) FILTER (WHERE was <> done)
    INTO updated, fresh FROM found;
    lines := lines || coalesce(fresh, '{}');
  END IF;

  IF delete_ids IS NOT NULL THEN
    WITH given AS (
      SELECT * FROM unnest(string_to_array(delete_ids, E'\n')::bigint[]) WITH ORDINALITY AS g (id, ord)
    ), gone AS (
      DELETE FROM todo_service.todos t USING given g WHERE t.id = g.id RETURNING t.id
    )
    SELECT string_agg((gone.id IS NOT NULL)::text, E'\n' ORDER BY ord),
           array_agg('-' || gone.id ORDER BY ord) FILTER (WHERE gone.id IS NOT NULL)
    INTO deleted, fresh FROM given LEFT JOIN gone ON gone.id = given.id;
    lines := lines || coalesce(fresh, '{}');
    s.todos := s.todos - coalesce(cardinality(fresh), 0);
  END IF;

  IF lines <> '{}' THEN
    INSERT INTO todo_service.events VALUES (s.n + cardinality(lines), array_to_string(lines, E'\n'));
    -- Deletes rarely, because deleting costs as much as writing.
    IF (s.n + cardinality(lines)) / 1000 > s.n / 1000 THEN
      DELETE FROM todo_service.events WHERE last_n <= s.n + cardinality(lines) - max_events;
    END IF;
    UPDATE todo_service.store SET last_id = s.last_id, n = s.n + cardinality(lines), todos = s.todos, receipts = s.receipts;
    PERFORM pg_notify('todo_service', (s.n + cardinality(lines))::text);
  END IF;
  SELECT * INTO STRICT epoch, n, tail FROM todo_service.tail(after_n);
END
$$;

-- The functions that return keys name their columns. If they returned the row type, a new column would make PostgreSQL
-- reject the prepared statements of running replicas.
CREATE FUNCTION todo_service.find_key(hash bytea) RETURNS TABLE (
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT k.id, k.name, k.token_hash, k.created_at, k.expires_at, k.last_used_at, k.lifetime, k.scope
    FROM todo_service.keys k WHERE k.token_hash = hash;
END
$$;

CREATE FUNCTION todo_service.list_keys() RETURNS TABLE (
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT k.id, k.name, k.token_hash, k.created_at, k.expires_at, k.last_used_at, k.lifetime, k.scope
    FROM todo_service.keys k ORDER BY k.created_at, k.added;
END
$$;

-- Adds a key, and keeps the 1,000 expired keys that expired last. Returns false if a key of the same name is still valid. A key
-- is expired only if it is expired by the clock of the database and by that of the replica.
CREATE FUNCTION todo_service.insert_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now bigint;
BEGIN
  LOCK TABLE todo_service.keys IN SHARE ROW EXCLUSIVE MODE;
  now := least(created_at, todo_service.clock_ms());
  IF EXISTS (
    SELECT FROM todo_service.keys k WHERE k.name = insert_key.name AND coalesce(k.expires_at > now, true)
  ) THEN
    RETURN false;
  END IF;
  INSERT INTO todo_service.keys VALUES (id, name, token_hash, created_at, expires_at, last_used_at, lifetime, scope);
  DELETE FROM todo_service.keys k WHERE k.expires_at < (
    SELECT e.expires_at FROM todo_service.keys e WHERE e.expires_at <= now ORDER BY e.expires_at DESC OFFSET 999 LIMIT 1
  );
  RETURN true;
END
$$;

-- Makes all keys with the name of a key expire at a time or earlier, adds a successor, and deletes keys as insert_key does.
-- Returns false if the key does not exist.
CREATE FUNCTION todo_service.replace_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text,
  replaced text, ends_at bigint
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE todo_service.keys IN SHARE ROW EXCLUSIVE MODE;
  UPDATE todo_service.keys k SET expires_at = least(k.expires_at, ends_at)
    WHERE k.name = (SELECT r.name FROM todo_service.keys r WHERE r.id = replaced);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO todo_service.keys VALUES (id, name, token_hash, created_at, expires_at, last_used_at, lifetime, scope);
  DELETE FROM todo_service.keys k WHERE k.expires_at < (
    SELECT e.expires_at FROM todo_service.keys e WHERE e.expires_at <= least(replace_key.created_at, todo_service.clock_ms())
    ORDER BY e.expires_at DESC OFFSET 999 LIMIT 1
  );
  RETURN true;
END
$$;

-- Deletes a key. Returns false if it does not exist.
CREATE FUNCTION todo_service.delete_key(key_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM todo_service.keys k WHERE k.id = key_id;
  RETURN FOUND;
END
$$;

-- Stores the last uses of keys: ids, and times in milliseconds since 1970, each list separated by spaces.
CREATE FUNCTION todo_service.record_key_uses(key_ids text, used_at text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE todo_service.keys k SET last_used_at = greatest(k.last_used_at, u.used_at)
  FROM unnest(string_to_array(key_ids, ' '), string_to_array(record_key_uses.used_at, ' ')::bigint[]) AS u (id, used_at)
  WHERE k.id = u.id;
END
$$;

-- Starts an import. The transaction then holds the store until it ends. Returns false if the store has had to-dos.
CREATE FUNCTION todo_service.start_import() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM todo_service.store s WHERE s.last_id = 0 AND s.n = 0 FOR UPDATE;
  RETURN FOUND;
END
$$;

-- Adds to-dos to the store. Each list has one line per to-do.
CREATE FUNCTION todo_service.import_todos(ids text, titles text, dones text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT todo_service.start_import() THEN
    RAISE EXCEPTION 'the store has had to-dos';
  END IF;
  INSERT INTO todo_service.todos
  SELECT * FROM unnest(string_to_array(ids, E'\n')::bigint[], string_to_array(titles, E'\n'),
                       string_to_array(dones, E'\n')::boolean[]);
END
$$;

CREATE FUNCTION todo_service.import_key(
  id text, name text, token_hash bytea, created_at bigint, expires_at bigint, last_used_at bigint, lifetime bigint, scope text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO todo_service.keys VALUES (id, name, token_hash, created_at, expires_at, last_used_at, lifetime, scope);
END
$$;

-- Ends an import. The store gets a new epoch, so that replicas reload everything and no position is used twice.
CREATE FUNCTION todo_service.finish_import(greatest_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  imported bigint;
  highest bigint;
BEGIN
  IF NOT todo_service.start_import() THEN
    RAISE EXCEPTION 'the store has had to-dos';
  END IF;
  SELECT count(*), coalesce(max(t.id), 0) INTO imported, highest FROM todo_service.todos t;
  UPDATE todo_service.store SET
    epoch = left(replace(gen_random_uuid()::text, '-', ''), 16),
    last_id = greatest(greatest_id, highest), n = imported, todos = imported;
  PERFORM pg_notify('todo_service', imported::text);
END
$$;
