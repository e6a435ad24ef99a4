-- Does what write does, but a new idempotency key evicts the oldest one if no more keys fit. Replicas of the previous
-- version still call write. Each list has one line per write and is NULL if it is empty. Returns one line per write: for an
-- insert the new id, or -1 if the key created another to-do, -3 if the store is full, -4 if no id is left; for an update
-- the to-do, or an empty line if it does not exist; for a deletion whether the to-do existed. Also returns the number of
-- evicted keys, and what tail returns.
CREATE FUNCTION todo_service.write_batch(
  after_n bigint, max_todos bigint, max_events bigint, now bigint,
  titles text, key_hashes text, title_hashes text,
  update_ids text, update_dones text, delete_ids text,
  OUT made text, OUT updated text, OUT deleted text, OUT evicted bigint, OUT epoch text, OUT n bigint, OUT tail text
) LANGUAGE plpgsql AS $$
DECLARE
  s todo_service.store%ROWTYPE;
  lines text[] := '{}';
  fresh text[];
  amount bigint;
BEGIN
  SELECT * INTO STRICT s FROM todo_service.store FOR UPDATE;
  evicted := 0;

  IF titles IS NOT NULL THEN
    IF key_hashes ~ '[^\n]' THEN
      DELETE FROM todo_service.receipts WHERE made_at <= now - 86400000;
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
        WHEN s.todos + nth > max_todos THEN -3
        WHEN s.last_id > 9223372036854775807 - nth THEN -4
        ELSE s.last_id + nth
      END AS placed_id FROM counted
    ), new AS (
      SELECT * FROM placed WHERE known_id IS NULL AND placed_id > 0
    ), stored AS (
      INSERT INTO todo_service.todos SELECT placed_id, title, false FROM new
    ), receipted AS (
      INSERT INTO todo_service.receipts SELECT key_hash, title_hash, placed_id, now FROM new WHERE key_hash IS NOT NULL
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
