-- The functions. A role needs only USAGE on the schema and EXECUTE on its functions. Therefore every access has a function
-- that runs with the rights of the schema's owner (SECURITY DEFINER) and with a fixed search_path. To-dos use the clock of
-- the database, because replicas may have wrong clocks. A key has expired if it has by the clocks of both.

CREATE FUNCTION todo_service.random_epoch() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT left(replace(gen_random_uuid()::text, '-', ''), 16)
$$;

-- Identifies the run of the server and the file of the table. It changes when a server is started, a standby takes over, or
-- a dump is restored: each may have lost changes that clients have seen.
CREATE FUNCTION todo_service.current_run() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_relation_filepath('todo_service.store') || ' ' || extract(epoch FROM pg_postmaster_start_time())
$$;

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
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.version FROM todo_service.format f;
$$;

-- Returns the position of the store, whether it has the history of another position, and the events after that position. A
-- line with '#' and an epoch precedes the events of each batch. PL/pgSQL keeps its query plans.
CREATE FUNCTION todo_service.tail(
  after_epoch text, after_sequence bigint, OUT epoch text, OUT sequence bigint, OUT is_known boolean, OUT tail text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.epoch, s.sequence INTO STRICT epoch, sequence FROM todo_service.store s;
  SELECT e.epoch = after_epoch INTO is_known FROM todo_service.events e
    WHERE e.last_sequence >= after_sequence ORDER BY e.last_sequence LIMIT 1;
  is_known := coalesce(is_known, epoch = after_epoch AND sequence = after_sequence);
  IF sequence > after_sequence THEN
    SELECT string_agg('#' || e.epoch || E'\n' || e.events, E'\n' ORDER BY e.last_sequence) INTO tail
    FROM todo_service.events e WHERE e.last_sequence > after_sequence;
  END IF;
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

-- Returns the greatest assigned id, the number of to-dos, and the position of the store.
CREATE FUNCTION todo_service.totals(OUT last_id bigint, OUT todos bigint, OUT epoch text, OUT sequence bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.last_id, s.todos, s.epoch, s.sequence INTO STRICT last_id, todos, epoch, sequence FROM todo_service.store s;
END
$$;

-- Applies a batch of writes. Each list has one line per write and is NULL if it is empty. Returns one line per write: for
-- an insert the new id, or -1 if the key created another to-do, -2 if the store is full, -3 if no id is left; for an update
-- the to-do, or an empty line if it does not exist; for a deletion whether the to-do existed. Also returns the number of
-- idempotency keys that it evicted because no more fit, and what tail returns.
CREATE FUNCTION todo_service.write(
  after_epoch text, after_sequence bigint, max_todos bigint, max_events bigint,
  titles text, key_hashes text, title_hashes text,
  update_ids text, update_dones text, delete_ids text,
  OUT created text, OUT updated text, OUT deleted text, OUT evicted bigint,
  OUT epoch text, OUT sequence bigint, OUT is_known boolean, OUT tail text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s todo_service.store%ROWTYPE;
  lines text[] := '{}';
  fresh text[];
  amount bigint;
  now_ms bigint;
BEGIN
  SELECT * INTO STRICT s FROM todo_service.store FOR UPDATE;
  now_ms := todo_service.clock_ms();
  evicted := 0;

  IF titles IS NOT NULL THEN
    IF key_hashes ~ '[^\n]' THEN
      -- Up to two expired records per key, so that a clock that jumps forward and back removes few.
      DELETE FROM todo_service.idempotency_records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM todo_service.idempotency_records
        WHERE created_at <= now_ms - 86400000 AND key_hash = ANY (string_to_array(key_hashes, E'\n'))
        UNION
        (SELECT ctid FROM todo_service.idempotency_records WHERE created_at <= now_ms - 86400000
         ORDER BY created_at, id LIMIT 2 * cardinality(array_remove(string_to_array(key_hashes, E'\n'), '')))
      ));
      GET DIAGNOSTICS amount = ROW_COUNT;
      IF amount > 0 THEN
        UPDATE todo_service.store SET idempotency_records = idempotency_records - amount RETURNING * INTO s;
      END IF;
    END IF;
    WITH known AS (
      SELECT g.ord, g.title, nullif(g.key_hash, '') AS key_hash, g.title_hash, r.id AS known_id, r.title_hash AS known_title,
             count(*) FILTER (WHERE r.id IS NULL) OVER (ORDER BY g.ord) AS nth
      FROM unnest(string_to_array(titles, E'\n'), string_to_array(key_hashes, E'\n'),
                  string_to_array(title_hashes, E'\n')) WITH ORDINALITY AS g (title, key_hash, title_hash, ord)
      LEFT JOIN todo_service.idempotency_records r ON r.key_hash = nullif(g.key_hash, '')
    ), placed AS (
      SELECT *, CASE
        WHEN known_title = title_hash THEN known_id
        WHEN known_id IS NOT NULL THEN -1
        WHEN s.todos + nth > max_todos THEN -2
        WHEN s.last_id > 9223372036854775807 - nth THEN -3
        ELSE s.last_id + nth
      END AS placed_id FROM known
    ), new AS (
      SELECT * FROM placed WHERE known_id IS NULL AND placed_id > 0
    ), stored AS (
      INSERT INTO todo_service.todos SELECT placed_id, title, false FROM new
    ), recorded AS (
      INSERT INTO todo_service.idempotency_records SELECT key_hash, title_hash, placed_id, now_ms FROM new WHERE key_hash IS NOT NULL
    )
    SELECT (SELECT string_agg(placed_id::text, E'\n' ORDER BY ord) FROM placed),
           array_agg('+' || todo_service.todo_json(placed_id, title, false) ORDER BY ord), count(key_hash)
    INTO created, fresh, amount FROM new;
    lines := coalesce(fresh, '{}');
    s.last_id := s.last_id + cardinality(lines);
    s.todos := s.todos + cardinality(lines);
    s.idempotency_records := s.idempotency_records + amount;
    IF amount > 0 AND s.idempotency_records > max_todos THEN
      -- No other transaction changes a ctid meanwhile, because this one holds the row of store.
      DELETE FROM todo_service.idempotency_records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM todo_service.idempotency_records ORDER BY created_at, id LIMIT s.idempotency_records - max_todos
      ));
      GET DIAGNOSTICS evicted = ROW_COUNT;
      s.idempotency_records := s.idempotency_records - evicted;
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
    IF s.run <> todo_service.current_run() THEN
      s.run := todo_service.current_run();
      s.epoch := todo_service.random_epoch();
    END IF;
    s.sequence := s.sequence + cardinality(lines);
    INSERT INTO todo_service.events VALUES (s.sequence, s.epoch, array_to_string(lines, E'\n'));
    -- Deletes rarely, because deleting costs as much as writing.
    IF s.sequence / 1000 > (s.sequence - cardinality(lines)) / 1000 THEN
      DELETE FROM todo_service.events WHERE last_sequence <= s.sequence - max_events;
    END IF;
    UPDATE todo_service.store SET epoch = s.epoch, run = s.run, last_id = s.last_id, sequence = s.sequence,
      todos = s.todos, idempotency_records = s.idempotency_records;
    PERFORM pg_notify('todo_service', s.sequence::text);
  END IF;
  SELECT t.* INTO STRICT epoch, sequence, is_known, tail FROM todo_service.tail(after_epoch, after_sequence) t;
END
$$;

CREATE FUNCTION todo_service.list_keys() RETURNS SETOF todo_service.key_rows
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.* FROM todo_service.key_rows k ORDER BY k.created_at, k.added;
$$;

CREATE FUNCTION todo_service.find_key(hash bytea) RETURNS SETOF todo_service.key_rows
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT k.* FROM todo_service.key_rows k WHERE k.token_hash = hash;
END
$$;

-- Returns the keys as list_keys does. No other transaction can change them until this one ends.
CREATE FUNCTION todo_service.lock_keys() RETURNS SETOF todo_service.key_rows
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  LOCK TABLE todo_service.keys IN SHARE ROW EXCLUSIVE MODE;
  RETURN QUERY SELECT * FROM todo_service.list_keys();
END
$$;

-- Adds a key, or changes the one with its id.
CREATE FUNCTION todo_service.put_key(key todo_service.key_rows) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO todo_service.keys OVERRIDING USER VALUE SELECT key.*
  ON CONFLICT (id) DO UPDATE SET name = excluded.name, expires_at = excluded.expires_at, last_used_at = excluded.last_used_at;
$$;

-- Deletes the keys with these ids, which spaces separate.
CREATE FUNCTION todo_service.delete_keys(ids text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM todo_service.keys k WHERE k.id = ANY (string_to_array(ids, ' '));
$$;

-- Starts or continues an import. The transaction then holds the store until it ends. Returns false if the store has had to-dos.
CREATE FUNCTION todo_service.start_import() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM todo_service.store s WHERE s.last_id = 0 AND s.sequence = 0 FOR UPDATE;
  RETURN FOUND;
END
$$;

-- Adds to-dos to a store that has had none, and otherwise nothing. Each list has one line per to-do.
CREATE FUNCTION todo_service.import_todos(ids text, titles text, dones text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO todo_service.todos
  SELECT * FROM unnest(string_to_array(ids, E'\n')::bigint[], string_to_array(titles, E'\n'),
                       string_to_array(dones, E'\n')::boolean[])
  WHERE (SELECT todo_service.start_import());
$$;

-- Returns the records of idempotency keys, the oldest first.
CREATE FUNCTION todo_service.list_idempotency_records() RETURNS TABLE (
  "keyHash" text, "titleHash" text, id bigint, "createdAt" bigint
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT r.key_hash, r.title_hash, r.id, r.created_at FROM todo_service.idempotency_records r ORDER BY r.created_at, r.id;
$$;

-- Adds records of idempotency keys to a store that has had no to-dos, and otherwise nothing. Each list has one line per record.
CREATE FUNCTION todo_service.import_idempotency_records(key_hashes text, title_hashes text, ids text, created_ats text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO todo_service.idempotency_records
  SELECT * FROM unnest(string_to_array(key_hashes, E'\n'), string_to_array(title_hashes, E'\n'),
                       string_to_array(ids, E'\n')::bigint[], string_to_array(created_ats, E'\n')::bigint[])
  WHERE (SELECT todo_service.start_import());
$$;

-- Ends an import. The store gets a new epoch, so that replicas reload everything and no position is used twice.
CREATE FUNCTION todo_service.finish_import(greatest_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  imported bigint;
  highest bigint;
BEGIN
  SELECT count(*), coalesce(max(t.id), 0) INTO imported, highest FROM todo_service.todos t;
  UPDATE todo_service.store SET
    epoch = todo_service.random_epoch(), run = todo_service.current_run(),
    last_id = greatest(greatest_id, highest), sequence = imported, todos = imported,
    idempotency_records = (SELECT count(*) FROM todo_service.idempotency_records)
    WHERE todo_service.start_import();
  PERFORM pg_notify('todo_service', imported::text);
END
$$;

INSERT INTO todo_service.store VALUES (todo_service.random_epoch(), todo_service.current_run(), 0, 0, 0, 0);
