import { afterEach, describe, expect, jest, setSystemTime, test } from "bun:test";
import { SQL } from "bun";
import { urlAt, whyNoDatabase } from "../../../test/postgres.ts";
import { startProxy } from "../../../test/postgres-proxy.ts";
import { errorOf } from "../../../test/rejection.ts";
import { skipFor } from "../../../test/skip.ts";
import { eachEvent } from "../../../test/store.ts";
import {
  decode,
  failureOf,
  persistenceContract,
  read,
  storeContract,
  take,
} from "../../../test/store-contract.ts";
import {
  ageIdempotencyKeys,
  emptyStores,
  executeSql,
  PATIENT,
  reasonOf,
  usePostgres,
} from "../../../test/stores.ts";
import { until } from "../../../test/until.ts";
import type { StoredKey } from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { ListQuery, Position, Todo, TodoId, TodoStore } from "../../todo.ts";
import type { TransferOptions } from "../maintenance.ts";
import { PRIMARY_DEFAULTS, type Store } from "../store.ts";
import { Primary } from "./primary.ts";
import { probePostgres } from "./schema.ts";
import { openPostgres, type PostgresOptions } from "./store.ts";
import { exportTodos, importTodos, migrateDatabase } from "./transfer.ts";

const HOUR = 60 * 60 * 1000;
const MAX_POSTGRES_ID = 2n ** 63n - 1n;
const CONNECTIONS =
  "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'todo-service'";
const LISTENING = `${CONNECTIONS} AND query ILIKE 'listen%'`;

describe.skipIf(skipFor(whyNoDatabase))("on PostgreSQL", () => {
  const databases = usePostgres();

  storeContract("postgres", emptyStores(databases));
  persistenceContract("postgres", async () => {
    const url = await databases.newDatabase();
    return () => openPostgres(url, PATIENT);
  });

  /** For roles and passwords, because another server may authenticate differently. */
  const testWithOwnServer = test.skipIf(skipFor(whyNoDatabase));

  let opened = new AsyncDisposableStack();
  afterEach(async () => {
    jest.useRealTimers();
    await opened.disposeAsync();
    opened = new AsyncDisposableStack();
  });

  const open = async (url: string, options?: PostgresOptions): Promise<Store> =>
    opened.adopt(await openPostgres(url, { ...PATIENT, ...options }), (store) => store.close());

  async function openTwo(options?: PostgresOptions) {
    const url = await databases.newDatabase();
    return { url, one: await open(url, options), other: await open(url, options) };
  }

  const openProxy = async (...to: Parameters<typeof startProxy>) => opened.use(await startProxy(...to));

  const setDefault = (url: string, setting: string) =>
    databases.query(`ALTER DATABASE ${databaseOf(url)} SET ${setting}`);

  test("a store shows acknowledged writes of another store while both handle other requests", async () => {
    const stores = await openTwo();
    const writeAndRead = async (writer: Store, reader: Store): Promise<void> => {
      for (let i = 0; i < 50; i++) {
        const { id } = await writer.insert("x");
        expect((await todoIn(reader, id))?.done).toBe(false);
        const { position } = await writer.setDone(id, true);
        expect((await todos(reader, { after: id - 1n, limit: 1 }))[0]).toEqual({
          id,
          title: "x",
          done: true,
        });
        expect((await reader.position()).sequence).toBeGreaterThanOrEqual(position.sequence);
        await writer.delete(id);
        expect(await reader.get(id)).toBeUndefined();
      }
    };
    const pairs = [
      [stores.one, stores.other],
      [stores.other, stores.one],
    ] as const;
    await Promise.all([1, 2, 3, 4].flatMap(() => pairs.map((pair) => writeAndRead(...pair))));
    expect(await todos(stores.one)).toEqual([]);
  });

  test("stores on one database assign ids without gaps and report the same events and lists", async () => {
    const stores = await openTwo();
    const start = await stores.one.position();
    const lists: { position: Position; todos: Todo[] }[] = [];
    const work = async (store: Store): Promise<void> => {
      for (let i = 0; i < 100; i++) {
        const { id } = await store.insert(`${i}`);
        if (i % 2 === 0) await store.setDone(id, true);
        if (i % 3 === 0) await store.delete(id - 1n);
        if (i % 5 === 0) lists.push(await read(await store.list({})));
      }
    };
    await Promise.all([stores.one, stores.other, stores.one, stores.other].map(work));

    const { epoch, sequence: n } = await stores.one.position();
    const events = await take(stores.one, start, n);
    expect(await take(stores.other, start, n)).toEqual(events);
    expect(events.map((event) => event.n)).toEqual(Array.from({ length: n }, (_, index) => index + 1));
    const created = events.filter(({ type }) => type === "created").map(({ id }) => id);
    expect(created).toEqual(Array.from({ length: 400 }, (_, index) => BigInt(index + 1)));
    lists.push(await read(await stores.one.list({})), await read(await stores.other.list({})));
    for (const { position, todos } of lists) {
      expect(position.epoch).toBe(epoch);
      expect(todos).toEqual(after(events.slice(0, position.sequence)));
    }
  });

  test("a reopened store loads more to-dos than one query returns", async () => {
    const url = await databases.newDatabase();
    await (await openPostgres(url)).close();
    await executeSql(
      url,
      `INSERT INTO todo_service.todos SELECT id, '"x"', false FROM generate_series(1, 20001) AS id;
       UPDATE todo_service.store SET last_id = 20001, todos = 20001`,
    );
    const store = await open(url);
    expect(store.count).toBe(20001);
    expect((await todoIn(store, 20001n))?.title).toBe("x");
  });

  test("a clock that jumps forward and back removes two idempotency keys per new key at most", async () => {
    const stores = await openTwo();
    const insert = async (key: string): Promise<TodoId> => (await stores.one.insert("x", key)).id;
    for (const key of "abcdef") await insert(key);
    await ageIdempotencyKeys(stores.url, 48);
    expect([await insert("later"), await insert("f")]).toEqual([7n, 8n]);
    await ageIdempotencyKeys(stores.url, -48);
    expect([await insert("e"), await insert("a")]).toEqual([5n, 9n]);
  });

  test("a store with a wrong clock neither expires nor keeps idempotency keys of others", async () => {
    const url = await databases.newDatabase();
    const store = await open(url);
    /** Inserts a to-do while the clock of this process is wrong. */
    const insertAt = async (hours: number, title: string, key: string): Promise<TodoId> => {
      setSystemTime(Date.now() + hours * HOUR);
      try {
        return (await store.insert(title, key)).id;
      } finally {
        setSystemTime();
      }
    };
    for (const hours of [25, -25, 0, 25]) {
      expect(await insertAt(hours, "a", "a")).toBe(1n);
      expect(await insertAt(-hours, "b", "b")).toBe(2n);
    }
    await ageIdempotencyKeys(url, 24);
    expect(await insertAt(-25, "e", "b")).toBe(3n);
  });

  test("an insert under a lower limit evicts the idempotency keys above the limit", async () => {
    let evicted = 0;
    const stores = await openTwo({ maxTodos: 8 });
    for (const key of "abcdefgh") await stores.one.insert("x", key);
    for (let id = 1n; id <= 8n; id++) await stores.one.delete(id);
    const lower = await open(stores.url, {
      maxTodos: 3,
      onIdempotencyKeysEvicted: (count) => {
        evicted += count;
      },
    });
    expect([(await lower.insert("x", "a")).id, evicted]).toEqual([1n, 0]);
    expect([(await lower.insert("x", "i")).id, evicted]).toEqual([9n, 6]);
    expect((await Promise.all([..."ghi"].map((key) => lower.insert("x", key)))).map(({ id }) => id)).toEqual([
      7n,
      8n,
      9n,
    ]);
  });

  test("a database of another version is rejected", async () => {
    const url = await databases.newDatabase();
    expect(await migrateDatabase(url)).toEqual({ from: 0, to: 1 });
    expect(await migrateDatabase(url)).toEqual({ from: 1, to: 1 });
    await executeSql(url, "UPDATE todo_service.format SET version = 2");
    const reason = "written by another version of this program (format 2;";
    for (const open of [openPostgres, migrateDatabase, probePostgres])
      expect((await errorOf(open(url))).message).toContain(reason);
  });

  test("ids reach the greatest bigint, and positions exceed 32 bits", async () => {
    const url = await databases.newDatabase();
    await (await openPostgres(url)).close();
    await executeSql(
      url,
      `UPDATE todo_service.store SET last_id = ${MAX_POSTGRES_ID - 2n}, sequence = ${2 ** 40}`,
    );
    const store = await open(url);
    const inserts = [1, 2, 3].map(() => idOrDetail(store.insert("x")));
    const noMoreIds = "The greatest possible id has been assigned.";
    expect(await Promise.all(inserts)).toEqual([MAX_POSTGRES_ID - 1n, MAX_POSTGRES_ID, noMoreIds]);
    expect((await store.setDone(MAX_POSTGRES_ID, true)).json).toBeDefined();
    expect((await todoIn(store, MAX_POSTGRES_ID))?.done).toBe(true);
    expect((await store.delete(MAX_POSTGRES_ID)).existed).toBe(true);
    expect((await store.position()).sequence).toBe(2 ** 40 + 4);
  });

  test("a store immediately rejects an API key that another store revoked", async () => {
    const stores = await openTwo();
    for (let i = 0; i < 50; i++) {
      const key = keyOf(`${i}`);
      expect(await stores.one.keys.insert(key)).toBe(true);
      expect((await stores.other.keys.find(key.tokenHash))?.id).toBe(key.id);
      expect(await stores.other.keys.insert({ ...key, id: "another" })).toBe(false);
      expect(await stores.one.keys.delete(key.id)).toBe(true);
      expect(await stores.other.keys.find(key.tokenHash)).toBeUndefined();
      expect(await stores.other.keys.list()).toEqual([]);
    }
  });

  test("only one of several stores uses up a link", async () => {
    const { one, other } = await openTwo();
    const parent = { kind: "user", name: "ann", entryHash: "x" } as const;
    await one.keys.insert(keyOf("link", { kind: "link", parent }));
    const inserts = ["a", "b", "c"].flatMap((id) =>
      [one, other].map(({ keys }) => keys.insert(keyOf(id, { kind: "device", parent }), { link: "link" })),
    );
    expect((await Promise.all(inserts)).filter((inserted) => inserted)).toHaveLength(1);
  });

  test("the last use of an API key is the latest of all stores and is written on close", async () => {
    const stores = await openTwo();
    await stores.one.keys.insert(keyOf("1"));
    stores.one.keys.recordUse("1", 2000);
    stores.other.keys.recordUse("1", 1000);
    await stores.one.close();
    await stores.other.close();
    expect(await numberOf(stores.url, "SELECT last_used_at FROM todo_service.keys")).toBe(2000);
  });

  test("a store whose clock is ahead expires no API key", async () => {
    const { keys } = await open(await databases.newDatabase());
    const later = Date.now() + 2 * HOUR;
    await keys.insert(keyOf("1", { expiresAt: Date.now() + HOUR }));
    expect(await keys.insert(keyOf("2", { createdAt: later }))).toBe(false);
    const made = {
      kind: "device",
      parent: { kind: "key", id: "1" },
      name: "made",
      createdAt: later,
    } as const;
    expect(await keys.insert(keyOf("3", made))).toBe(true);
  });

  test("stores opened concurrently on an empty database all work", async () => {
    for (let round = 0; round < 3; round++) {
      const url = await databases.newDatabase();
      const stores = await Promise.all(Array.from({ length: 8 }, () => openPostgres(url)));
      const ids = await Promise.all(stores.map(async (store) => (await store.insert("x")).id));
      expect(ids.toSorted((a, b) => Number(a - b))).toEqual(stores.map((_, index) => BigInt(index + 1)));
      expect(
        new Set(await Promise.all(stores.map(async (store) => (await store.position()).epoch))).size,
      ).toBe(1);
      await Promise.all(stores.map((store) => store.close()));
    }
  });

  test("a store reloads everything when the events that it missed are no longer stored", async () => {
    const url = await databases.newDatabase();
    const options = { maxEvents: 100 };
    const proxy = await openProxy(url);
    const stalled = await open(proxy.url, options);
    const other = await open(url, options);
    const { id } = await other.insert("a");
    const start = await stalled.position();
    const subscriber = eachEvent(stalled, start);
    proxy.flow("hold", "hold");
    const next = subscriber.next();
    await Promise.all(Array.from({ length: 2500 }, () => other.insert("b")));
    await other.setDone(id, true);
    await other.delete(2n);
    await executeSql(url, "DELETE FROM todo_service.events WHERE last_sequence <= 2000");
    proxy.flow("pass", "pass");
    expect((await next).done).toBe(true);
    expect(await stalled.position()).toEqual(await other.position());
    expect(await todos(stalled)).toEqual(await todos(other));
    expect((await stalled.insert("c")).id).toBe(2502n);
    const { sequence: n } = await other.position();
    expect((await take(stalled, { ...start, sequence: n - 1 }, 1)).map(({ id }) => id)).toEqual([2502n]);
  });

  test("the database keeps at least 100,000 events for stores that lag behind, and deletes older events", async () => {
    const url = await databases.newDatabase();
    const store = await open(url, { maxEvents: 10 });
    const insertMany = () => Promise.all(Array.from({ length: 2500 }, () => store.insert("x")));
    const kept = () => numberOf(url, "SELECT min(last_sequence) FROM todo_service.events");
    await insertMany();
    const first = await kept();
    expect(first).toBeLessThanOrEqual(1000);
    await executeSql(url, "UPDATE todo_service.store SET sequence = sequence + 99000");
    await insertMany();
    expect(await kept()).toBeGreaterThan(first);
  });

  test("a store listens for notifications only while it has subscribers", async () => {
    const stores = await openTwo();
    const listens = (times: number) => comesTo(stores.url, LISTENING, times);
    await listens(0);
    const ended = new AbortController();
    const events = eachEvent(stores.other, await stores.other.position(), ended.signal);
    const next = events.next();
    await listens(1);
    await stores.one.insert("x");
    expect((await next).value?.type).toBe("created");
    ended.abort();
    expect((await events.next()).done).toBe(true);
    await listens(0);
  });

  test("a subscriber receives its first event by notification if a poll runs during its first read", async () => {
    const url = await databases.newDatabase();
    const proxy = await openProxy(url);
    const other = await open(url);
    jest.useFakeTimers();
    const store = await open(proxy.url);
    const position = await store.position();
    proxy.flow("hold", "hold");
    const next = eachEvent(store, position).next();
    // The store polls once here and never again, because its interval is a fake timer.
    jest.advanceTimersByTime(1000);
    jest.useRealTimers();
    proxy.flow("pass", "pass");
    await other.insert("x");
    expect((await next).value?.id).toBe(1n);
  });

  test("a store closes connections that do not respond, and listens on new connections", async () => {
    const url = await databases.newDatabase();
    const proxy = await openProxy(url);
    const store = await open(proxy.url, { queryTimeoutMs: 5000 });
    const events = eachEvent(store, await store.position());
    const first = events.next();
    await store.insert("x");
    expect((await first).value?.id).toBe(1n);
    await comesTo(url, LISTENING, 1);
    const next = events.next();
    proxy.flow("drop", "drop");
    expect(await failureOf(() => store.get(1n))).toBe("store_unavailable");
    await comesTo(url, CONNECTIONS, 0);
    proxy.flow("pass", "pass");
    while ((await failureOf(() => store.insert("x"))) !== undefined) await Bun.sleep(50);
    await comesTo(url, LISTENING, 1);
    expect((await next).value?.id).toBe(2n);
  });

  test("the database cancels a query after the store's timeout", async () => {
    const url = await databases.newDatabase();
    const store = await open(url, { queryTimeoutMs: 5000 });
    const holding = new SQL(url, { max: 1 });
    await holding.begin(async (sql) => {
      await sql.unsafe("SELECT FROM todo_service.store FOR UPDATE");
      expect(await failureOf(() => store.insert("x"))).toBe("store_unavailable");
      await comesTo(url, `${CONNECTIONS} AND state = 'active'`, 0);
    });
    await holding.close();
    expect((await store.position()).sequence).toBe(0);
    expect((await store.insert("y")).id).toBe(1n);
  });

  test("a store's connections override the default settings of the database", async () => {
    const url = await databases.newDatabase();
    const settings = {
      search_path: "pg_catalog",
      synchronous_commit: "on",
      default_transaction_isolation: "read committed",
    };
    await setDefault(url, "search_path = public, pg_catalog");
    await setDefault(url, "synchronous_commit = off");
    await setDefault(url, "default_transaction_isolation = 'serializable'");
    const primary = new Primary(url, PRIMARY_DEFAULTS);
    for (const [setting, value] of Object.entries(settings))
      expect(await primary.query(`SELECT current_setting('${setting}') AS value`)).toEqual([{ value }]);
    await primary.close();
  });

  test("a connection pooler that drops session parameters is rejected", async () => {
    const url = await databases.newDatabase();
    const pooler = await openProxy(url, (bytes) =>
      Buffer.from(
        bytes.toString("latin1").replace("todo_service.direct\0on", "todo_service.direct\0no"),
        "latin1",
      ),
    );
    const { message } = await errorOf(openPostgres(pooler.url, PATIENT));
    expect(message).toContain("connect to PostgreSQL directly");
  });

  test("a store that loses its host continues on another host", async () => {
    const url = await databases.newDatabase();
    const first = await startProxy(url);
    const second = await openProxy(url);
    const ports = [first, second].map((proxy) => Number(new URL(proxy.url).port));
    const store = await open(urlAt(url, ports), PATIENT);
    await store.insert("x");
    await first[Symbol.asyncDispose]();
    while ((await failureOf(() => store.setDone(1n, true))) !== undefined) await Bun.sleep(50);
    expect(await todos(store)).toEqual([{ id: 1n, title: "x", done: true }]);
  });

  test("an import of an export has the same to-dos, last id, API keys and idempotency keys", async () => {
    const url = await databases.newDatabase();
    const store = await openPostgres(url, PATIENT);
    for (const title of ["a", 'b "\u0000" 😀\n', "c"]) await store.insert(title, `key of ${title}`);
    await store.setDone(2n, true);
    await store.delete(3n);
    await store.keys.insert(keyOf("1", { scope: "read", createdAt: 5, expiresAt: HOUR }));
    await store.close();
    for (const [keys, counts] of [
      ["omit", { todos: 2, lastId: 3n }],
      ["include", { todos: 2, lastId: 3n, keys: 1 }],
    ] as const) {
      const copy = await databases.newDatabase();
      const exported = await exportedText(url, keys);
      expect(exported.summary).toEqual(counts);
      const options = { ...TRANSFER, keys };
      expect(await importTodos(copy, new Blob([exported.text]).stream(), 2, options)).toEqual(counts);
      expect(await exportedText(copy, keys)).toEqual(exported);
      const again = importTodos(copy, new Blob([exported.text]).stream(), 2, options);
      expect((await errorOf(again)).message).toStartWith("the database has contained to-dos: import into a");
      const moved = await open(copy, { ...PATIENT, maxTodos: 3 });
      expect((await moved.insert("c", "key of c")).id).toBe(3n);
      expect(await failureOf(() => moved.insert("b", "key of a"))).toBe("idempotency_key_reused");
      await moved.insert("d", "key of d");
      expect(await numberOf(copy, "SELECT idempotency_records FROM todo_service.store")).toBe(3);
    }
  });

  test.each([
    ["is truncated", -5, 25_000, "is the file truncated?"],
    ["has too many to-dos", undefined, 24_999, "the file has more than 24999 to-dos: raise the limit"],
  ])("an import of a file that %s leaves the database empty", async (_what, end, maxTodos, reason) => {
    const url = await databases.newDatabase();
    const lines = Array.from({ length: 25_000 }, (_, i) => `{"id":${i + 1},"title":"x","done":false}\n`);
    const file = new Blob([lines.join("").slice(0, end)]).stream();
    expect((await errorOf(importTodos(url, file, maxTodos, TRANSFER))).message).toContain(reason);
    expect((await exportedText(url, "omit")).text).toBe('{"todoService":1,"lastId":"0","todos":0}\n');
  });

  test("probePostgres rejects a read-only database", async () => {
    const url = await databases.newDatabase();
    await setDefault(url, "default_transaction_read_only = on");
    expect((await errorOf(probePostgres(url))).message).toBe("the database is read-only");
  });

  test("a store continues in a new epoch after the database was restored", async () => {
    const stores = await openTwo();
    for (const title of ["a", "b", "c"]) await stores.one.insert(title);
    const before = await stores.other.position();
    const subscriber = eachEvent(stores.other, before);
    const next = subscriber.next();
    // A query that begins before the restore and reads after it finds no row, and the subscription would fail.
    await comesTo(stores.url, LISTENING, 1);
    // Like pg_restore with an older dump.
    await executeSql(
      stores.url,
      `BEGIN; ALTER TABLE todo_service.store RENAME TO gone;
       CREATE TABLE todo_service.store (LIKE todo_service.gone INCLUDING ALL);
       INSERT INTO todo_service.store
         SELECT epoch, run, last_id - 1, sequence - 1, todos - 1, idempotency_records FROM todo_service.gone;
       DROP TABLE todo_service.gone; DELETE FROM todo_service.todos WHERE id = 3;
       DELETE FROM todo_service.events WHERE last_sequence = 3; COMMIT`,
    );
    expect(await stores.other.position()).toEqual({ epoch: before.epoch, sequence: 2 });
    expect((await todos(stores.one)).map(({ title }) => title)).toEqual(["a", "b"]);
    expect((await next).done).toBe(true);
    expect((await stores.one.insert("d")).id).toBe(3n);
    const after = await stores.other.position();
    expect([after.epoch === before.epoch, after.sequence]).toEqual([false, 3]);
    expect((await todos(stores.other)).map(({ title }) => title)).toEqual(["a", "b", "d"]);
  });

  test("checkWrites fails after a failed write until writes succeed again, and changes nothing", async () => {
    const stores = await openTwo();
    const rename = (from: string, to: string) =>
      executeSql(stores.url, `ALTER FUNCTION todo_service.${from} RENAME TO ${to}`);
    expect(stores.one.checkWrites?.()).toBeUndefined();
    await rename("write", "gone");
    const isUnavailable = (error: unknown) =>
      error instanceof ServiceError && error.code === "store_unavailable";
    expect(isUnavailable(await errorOf(stores.one.insert("a")))).toBe(true);
    for (const _ of [1, 2]) expect(isUnavailable(await errorOf(stores.one.checkWrites?.()))).toBe(true);
    expect((await stores.one.position()).sequence).toBe(0);
    await rename("gone", "write");
    await stores.one.checkWrites?.();
    expect(stores.one.checkWrites?.()).toBeUndefined();
    expect((await stores.one.position()).sequence).toBe(0);
    expect((await stores.one.insert("a")).id).toBe(1n);
  });

  test("a closed store rejects all calls and has no connection", async () => {
    const url = await databases.newDatabase();
    const store = await openPostgres(url);
    await store.insert("x");
    const reading = store.get(1n);
    await store.close();
    await Promise.allSettled([reading]);
    expect(await failureOf(() => store.get(1n))).toBe("store_unavailable");
    expect(await failureOf(() => store.insert("y"))).toBe("store_unavailable");
    await comesTo(url, CONNECTIONS, 0);
  });

  describe("openPostgres reports the reason for", () => {
    test("another encoding", async () => {
      const url = await databases.newDatabase("ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
      expect((await errorOf(openPostgres(url))).message).toContain(
        "the database has the encoding SQL_ASCII: create one with the encoding UTF8",
      );
    });

    testWithOwnServer("a wrong password", async () => {
      const url = new URL(await databases.newDatabase());
      url.password = "s3cret";
      expect(await reasonOf(url)).toBe(
        `${url.host}: password authentication failed for user "${url.username}"`,
      );
    });

    test("a missing database", async () => {
      const url = new URL(await databases.newDatabase());
      url.pathname = "/absent";
      expect(await reasonOf(url)).toBe(`${url.host}: database "absent" does not exist`);
    });

    test.each([
      ["127.0.0.1:1/todos", "127.0.0.1:1: Failed to connect"],
      ["127.0.0.1:1,127.0.0.1:2/todos", "127.0.0.1:1: Failed to connect; 127.0.0.1:2: Failed to connect"],
      ["/todos?host=/nowhere", "localhost: Failed to connect to /nowhere/.s.PGSQL.5432"],
    ])("the hosts and the database %p without a server", async (rest, reason) => {
      expect(await reasonOf(`postgres://todo:s3cret@${rest}`)).toBe(
        `${reason}; check that PostgreSQL is running, and the host and port of the URL`,
      );
    });

    test.each([
      ["search_path=home", "search_path", "use one database for each list"],
      ["options=-csearch_path=home", "search_path", "use one database for each list"],
      [
        "sslmode=disable&options=-c%20jit=off%20--Search-Path=home",
        "search_path",
        "use one database for each list",
      ],
      ["synchronous_commit=off", "synchronous_commit", "remove it from the URL"],
    ])("the parameter %p, which would have no effect", async (parameters, name, remedy) => {
      expect(await reasonOf(`postgres://todo:s3cret@127.0.0.1:1/todos?${parameters}`)).toBe(
        `the service sets ${name} itself, so it has no effect in the URL: ${remedy}`,
      );
    });

    test.each([
      "postgres://todo:s3cret@127.0.0.1:99999/todos",
      "postgres://todo:s3cret@127.0.0.1:1,:2/todos",
      "postgres://todo:s3%cret@127.0.0.1/todos",
      "postgres://todo:s3/cret@127.0.0.1/todos",
      "postgres://todo:s3#cret@127.0.0.1/todos",
      "postgres://todo:s3cret@",
    ])("%s", async (url) => {
      expect(await reasonOf(url)).toMatch(/^the URL is invalid: in a password, write .* such as %23 for #$/);
    });
  });

  testWithOwnServer("an existing schema's owner owns what a member of its role creates in it", async () => {
    const url = new URL(await databases.newDatabase());
    const owner = `owner_${url.pathname.slice(1)}`;
    const member = new URL(url);
    member.username = `member_${url.pathname.slice(1)}`;
    await databases.query(`CREATE ROLE ${owner}`);
    await databases.query(`CREATE ROLE ${member.username} LOGIN PASSWORD '${url.password}' IN ROLE ${owner}`);
    await executeSql(url.href, `CREATE SCHEMA todo_service AUTHORIZATION ${owner}`);
    await (await openPostgres(member.href)).close();
    for (const [catalog, namespace, ownerColumn] of [
      ["pg_class", "relnamespace", "relowner"],
      ["pg_proc", "pronamespace", "proowner"],
    ]) {
      const inSchema = `SELECT count(*) FROM ${catalog} WHERE ${namespace} = 'todo_service'::regnamespace`;
      expect(await numberOf(url.href, inSchema)).toBeGreaterThan(0);
      expect(await numberOf(url.href, `${inSchema} AND ${ownerColumn} <> '${owner}'::regrole`)).toBe(0);
    }
  });

  testWithOwnServer.each<[what: string, create: (owner: string) => string]>([
    ["a schema", (owner) => `CREATE SCHEMA todo_service AUTHORIZATION ${owner}`],
    [
      "tables",
      (owner) =>
        `CREATE SCHEMA todo_service; CREATE TABLE todo_service.format (version bigint);
         ALTER TABLE todo_service.format OWNER TO ${owner}`,
    ],
  ])("a superuser is rejected and runs no code of a role that owns %s", async (_what, create) => {
    const url = new URL(await databases.newDatabase());
    const owner = `owner_${url.pathname.slice(1)}`;
    await databases.query(`CREATE ROLE ${owner}`);
    await executeSql(
      url.href,
      `${create(owner)};
       CREATE FUNCTION todo_service.format_version() RETURNS bigint LANGUAGE plpgsql AS
         'BEGIN ALTER ROLE ${owner} SUPERUSER; RETURN 3; END';
       ALTER FUNCTION todo_service.format_version OWNER TO ${owner}`,
    );
    const reason = `${url.username} is a superuser, and ${owner}, the owner of the schema todo_service, could run code with its rights: connect as ${owner}`;
    expect(await reasonOf(url)).toBe(reason);
    expect((await errorOf(migrateDatabase(url.href))).message).toBe(reason);
    expect((await errorOf(probePostgres(url.href))).message).toBe(reason);
    const superusers = `SELECT count(*) FROM pg_roles WHERE rolname = '${owner}' AND rolsuper`;
    expect(await numberOf(url.href, superusers)).toBe(0);
  });

  describe("a role with USAGE and EXECUTE only", () => {
    async function newRole(url: string, grants: (role: string) => string): Promise<string> {
      const restricted = new URL(url);
      restricted.username = `of_${restricted.pathname.slice(1)}`;
      await databases.query(`CREATE ROLE ${restricted.username} LOGIN PASSWORD '${restricted.password}'`);
      await executeSql(url, grants(restricted.username));
      return restricted.href;
    }

    const grants = (role: string): string =>
      `GRANT USAGE ON SCHEMA todo_service TO ${role};
       GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service TO ${role}`;

    testWithOwnServer("reads, writes and subscribes through the store, which changes no schema", async () => {
      const url = await databases.newDatabase();
      await (await openPostgres(url)).close();
      const restricted = await newRole(url, grants);
      const schema = `SELECT (SELECT sum(xmin::text::bigint) FROM pg_class)
        + (SELECT sum(xmin::text::bigint) FROM pg_proc) + (SELECT sum(xmin::text::bigint) FROM todo_service.format)`;
      const before = await numberOf(url, schema);
      const store = await openPostgres(restricted);
      const seen = take(store, await store.position(), 4);
      expect((await store.insert("a", "key")).id).toBe(1n);
      expect((await store.insert("a", "key")).id).toBe(1n);
      await store.insert("b");
      await store.setDone(1n, true);
      await store.delete(2n);
      expect((await seen).map(({ type }) => type)).toEqual(["created", "created", "updated", "deleted"]);
      expect(await store.keys.insert(keyOf("1"))).toBe(true);
      expect(await store.keys.replace("1", 9, keyOf("2"))).toBe(true);
      expect((await store.keys.find(hashToken("2")))?.id).toBe("2");
      store.keys.recordUse("2", 5);
      expect(await store.keys.delete("1")).toBe(true);
      await store.close();
      const reopened = await openPostgres(restricted);
      expect(await todos(reopened)).toEqual([{ id: 1n, title: "a", done: true }]);
      expect((await reopened.keys.list()).map(({ lastUsedAt }) => lastUsedAt)).toEqual([5]);
      await reopened.close();
      const { text } = await exportedText(restricted, "include");
      expect(await numberOf(url, schema)).toBe(before);
      const empty = await databases.newDatabase();
      await migrateDatabase(empty);
      const file = new Blob([text]).stream();
      await importTodos(await newRole(empty, grants), file, 9, { ...TRANSFER, keys: "include" });
      expect((await exportedText(empty, "include")).text).toBe(text);
      const sql = new SQL(restricted, { max: 1 });
      for (const table of ["todos", "events", "idempotency_records", "keys", "store", "format"]) {
        const error = await errorOf(sql.unsafe(`SELECT FROM todo_service.${table}`));
        expect(error.message).toBe(`permission denied for table ${table}`);
      }
      await sql.close();
    });

    testWithOwnServer("is told to have a missing schema created", async () => {
      const url = await databases.newDatabase();
      const restricted = await newRole(url, () => "SELECT");
      const { username } = new URL(restricted);
      const reason = `the role ${username} may not use the schema todo_service: as ${new URL(url).username}, run "todo migrate", then GRANT USAGE `;
      expect(await reasonOf(restricted)).toStartWith(reason);
      expect((await errorOf(probePostgres(restricted))).message).toStartWith(reason);
      expect((await errorOf(migrateDatabase(restricted))).message).toStartWith(reason);
    });

    testWithOwnServer("is told which rights to grant", async () => {
      const url = await databases.newDatabase();
      await (await openPostgres(url)).close();
      const restricted = await newRole(url, (role) => `GRANT USAGE ON SCHEMA todo_service TO ${role}`);
      const { username } = new URL(restricted);
      const reason = await reasonOf(restricted);
      expect(reason).toEndWith(`GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA todo_service TO ${username}`);
    });
  });

  test("the database of the URL overrides the variable PGDATABASE", async () => {
    const url = await databases.newDatabase();
    process.env.PGDATABASE = "absent";
    try {
      await (await openPostgres(url)).close();
    } finally {
      delete process.env.PGDATABASE;
    }
  });
});

const TRANSFER: TransferOptions = { signal: new AbortController().signal };

async function exportedText(url: string, keys: "include" | "omit") {
  let text = "";
  const write = async (more: string): Promise<void> => {
    text += more;
  };
  return { summary: await exportTodos(url, write, { ...TRANSFER, keys }), text };
}

const databaseOf = (url: string): string => new URL(url).pathname.slice(1);

const keyOf = (id: string, more: Partial<StoredKey> = {}): StoredKey => ({
  ...{ id, name: "ci", tokenHash: hashToken(id), scope: "write", createdAt: 0 },
  ...more,
});

async function numberOf(url: string, query: string): Promise<number> {
  const sql = new SQL(url, { max: 1 });
  const [[value] = []] = await sql.unsafe<string[][]>(query).values();
  await sql.close();
  return Number(value);
}

const comesTo = (url: string, query: string, wanted: number): Promise<void> =>
  until(async () => (await numberOf(url, query)) === wanted, `${query} is ${wanted}`);

const todos = async (store: TodoStore, query: ListQuery = {}): Promise<Todo[]> =>
  (await read(await store.list(query))).todos;

async function todoIn(store: TodoStore, id: TodoId): Promise<Todo | undefined> {
  const json = await store.get(id);
  return json === undefined ? undefined : decode(json);
}

/** Returns the to-dos that result from changes to an empty store. */
function after(changes: Awaited<ReturnType<typeof take>>): Todo[] {
  const all = new Map<TodoId, Todo>();
  for (const { id, todo } of changes) {
    if (todo === undefined) all.delete(id);
    else all.set(id, todo);
  }
  return [...all.values()];
}

async function idOrDetail(inserted: ReturnType<TodoStore["insert"]>): Promise<TodoId | string | undefined> {
  try {
    return (await inserted).id;
  } catch (error) {
    if (error instanceof ServiceError) return error.detail;
    throw error;
  }
}
