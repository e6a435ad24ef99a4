-- The version of the schema.
CREATE TABLE todo_service.format (version bigint NOT NULL);
INSERT INTO todo_service.format VALUES (1);
-- A title is stored as its JSON string, so it can contain U+0000 and is encoded only once.
CREATE TABLE todo_service.todos (id bigint PRIMARY KEY, title text NOT NULL, done boolean NOT NULL);
-- A row has all events of a batch, one event per line, and the last sequence number. An epoch is a run of the server.
CREATE TABLE todo_service.events (last_sequence bigint PRIMARY KEY, epoch text NOT NULL, events text NOT NULL);
CREATE TABLE todo_service.idempotency_records (
  key_hash text PRIMARY KEY, title_hash text NOT NULL, id bigint NOT NULL, created_at bigint NOT NULL
);
CREATE INDEX idempotency_records_by_age ON todo_service.idempotency_records (created_at);
-- A key was made with another key, a user or a client, such as 'key:ID' or 'user:HASH:NAME', or is that of a client (NULL).
CREATE TABLE todo_service.keys (
  id text PRIMARY KEY, name text NOT NULL, token_hash bytea NOT NULL UNIQUE,
  created_at bigint NOT NULL, expires_at bigint, last_used_at bigint, lifetime bigint, scope text NOT NULL,
  made_with text, added bigint GENERATED ALWAYS AS IDENTITY
);
-- The rows that functions take and return. A new column of the table does not change them for running replicas.
CREATE VIEW todo_service.key_rows AS
SELECT id, name, token_hash, created_at, expires_at, last_used_at, lifetime, scope, made_with, added FROM todo_service.keys;
-- The table has one row. Each write locks it, so ids and positions have no gaps and follow the order of commits.
CREATE TABLE todo_service.store (
  epoch text NOT NULL, run text NOT NULL, last_id bigint NOT NULL, sequence bigint NOT NULL,
  todos bigint NOT NULL, idempotency_records bigint NOT NULL
) WITH (fillfactor = 10);
