import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { errorOf } from "../../../test/rejection.ts";
import { eachEvent } from "../../../test/store.ts";
import { read } from "../../../test/store-contract.ts";
import { copiesOf, storePathsIn } from "../../../test/temporary.ts";
import type { StoredKey } from "../../credential/key.ts";
import { errorMessage } from "../../error-message.ts";
import { openSqliteKeys } from "./keys.ts";
import { restore } from "./maintenance/backup.ts";
import { check, probeSqlite } from "./maintenance/check.ts";
import { openSqlite } from "./store.ts";

const newPath = storePathsIn();

const key = (name: string, createdAt = 1): StoredKey => ({
  id: `id of ${name}`,
  name,
  tokenHash: new Uint8Array(32).fill(name.charCodeAt(0)),
  scope: "read",
  createdAt,
});

/** Creates a store with data of every kind. */
const makeStore = copiesOf(newPath, async (path) => {
  const store = await openSqlite(path);
  for (const title of ["a", "b", "😀"]) await store.insert(title);
  await store.insert("once", "key of the client");
  await store.setDone(2n, true);
  await store.keys.insert(key("alice"));
  await store.keys.insert(key("bob"));
  await store.keys.insert({ ...key("zoe"), scope: "write" });
  await store.close();
});

function run(path: string, sql: string): void {
  const database = new Database(path);
  database.run(sql);
  database.close();
}

async function refusal(path: string): Promise<string | undefined> {
  try {
    await (await openSqlite(path)).close();
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
}

/** Opens a store again, which compares its contents with the checksum, and closes it. */
async function reopen(path: string): Promise<void> {
  expect(await refusal(path)).toBeUndefined();
}

describe("openSqlite", () => {
  test.each([
    ["another title", `UPDATE todos SET json = replace(json, '"a"', '"c"') WHERE id = 1`],
    ["another state", "UPDATE todos SET json = replace(json, 'false', 'true') WHERE id = 1"],
    [
      "exchanged titles",
      `UPDATE todos SET json = CASE id WHEN 1 THEN replace(json, '"a"', '"b"') ELSE replace(json, '"b"', '"a"') END WHERE id < 3`,
    ],
    ["another id", "UPDATE todos SET id = 5 WHERE id = 4"],
    ["a missing to-do", "DELETE FROM todos WHERE id = 1"],
    ["an additional to-do", `INSERT INTO todos VALUES (9, '{"id":9,"title":"c","done":false}')`],
    ["another name of an API key", "UPDATE keys SET name = 'carol' WHERE name = 'bob'"],
    ["another token hash", "UPDATE keys SET token_hash = zeroblob(32) WHERE name = 'bob'"],
    ["another scope of an API key", "UPDATE keys SET scope = 'write' WHERE name = 'bob'"],
    ["an unknown scope of an API key", "UPDATE keys SET scope = 'admin' WHERE name = 'zoe'"],
    ["an expired API key", "UPDATE keys SET expires_at = 2 WHERE name = 'bob'"],
    ["a missing API key", "DELETE FROM keys WHERE name = 'bob'"],
    ["another id", "UPDATE store SET id = 'x'"],
    ["another epoch", "UPDATE store SET epoch = 'x'"],
    ["another last id", "UPDATE store SET last_id = 7"],
    ["another position", "UPDATE store SET sequence = sequence + 1"],
    ["another number of transactions", "UPDATE store SET transactions = transactions + 1"],
    ["another first half of the checksum", "UPDATE store SET checksum_a = checksum_a + 1"],
    ["another second half of the checksum", "UPDATE store SET checksum_b = checksum_b + 1"],
    ["a store table without a row", "DELETE FROM store"],
  ])("refuses a store with %s and names the recovery commands", async (_what, sql) => {
    const path = await makeStore();
    run(path, sql);
    // The mark would notice changed counters first.
    rmSync(`${path}-mark`);
    const message = await refusal(path);
    expect(message).toStartWith(`${path}: it is damaged (`);
    for (const command of ["todo check", "todo export --skip-damaged", "todo restore"]) {
      expect(message).toContain(command);
    }
    expect(message).not.toContain("\n");
  });

  test("refuses a store with a damaged page and names the recovery commands", async () => {
    const path = await makeStore();
    const bytes = readFileSync(path);
    // The first page has the schema.
    writeFileSync(path, bytes.fill(0xee, 4096));
    const message = await refusal(path);
    for (const command of ["todo check", "todo export --skip-damaged", "todo restore"]) {
      expect(message).toContain(command);
    }
  });

  test("refuses a store whose index has another token hash than the API key", async () => {
    const path = await makeStore();
    const bytes = readFileSync(path);
    const { tokenHash } = key("bob");
    const offsets: number[] = [];
    for (let at = bytes.indexOf(tokenHash); at !== -1; at = bytes.indexOf(tokenHash, at + 32))
      offsets.push(at);
    // One is in the table, one in the index.
    expect(offsets).toHaveLength(2);
    const messages: (string | undefined)[] = [];
    for (const offset of offsets) {
      const damaged = Buffer.from(bytes);
      damaged[offset] = 0;
      writeFileSync(path, damaged);
      messages.push(await refusal(path));
    }
    expect(messages.join("\n")).toMatch(/its structure is inconsistent/);
    for (const message of messages) expect(message).toStartWith(`${path}: it is damaged (`);
  });

  test.each([5, 9e15, -9e15])("ignores another last use of an API key: %d", async (time) => {
    const path = await makeStore();
    run(path, `UPDATE keys SET last_used_at = ${time}`);
    const store = await openSqlite(path, { onWarning: expect.unreachable });
    const found = await store.keys.list();
    expect(found.map(({ lastUsedAt }) => lastUsedAt)).toEqual(Array(3).fill(time === 5 ? 5 : undefined));
    await store.close();
  });
});

test("a damaged schema is reported in one line", async () => {
  const path = await makeStore();
  writeFileSync(path, readFileSync(path, "latin1").replaceAll("BLOB N", "BLOB `"), "latin1");
  const said = (await check(path)).map(({ detail }) => detail);
  for (const text of [await refusal(path), ...said])
    expect(text).toMatch(/malformed database schema.*token.*$/);
});

describe("a store with damaged events", () => {
  test.each([
    [
      "a changed title",
      "UPDATE events SET events = replace(events, 'done', 'gone') WHERE last_sequence = 2",
      "the events before position 3 are damaged",
    ],
    [
      "a changed epoch",
      "UPDATE events SET epoch = '0123456789abcdef' WHERE last_sequence = 5",
      "the events before position 6 are damaged",
    ],
    [
      "a changed position",
      "UPDATE events SET last_sequence = 6 WHERE last_sequence = 5",
      "the events before position 7 are damaged",
    ],
    ["a missing row", "DELETE FROM events WHERE last_sequence = 2", "events before position 3 are missing"],
    ["no last row", "DELETE FROM events WHERE last_sequence = 5", "events after position 4 are missing"],
  ])("starts without events, in a new epoch and with a warning: %s", async (_what, sql, reason) => {
    const path = await makeStore();
    using database = new Database(path);
    const { epoch } = database.query<{ epoch: string }, []>("SELECT epoch FROM store").get() ?? {};
    run(path, sql);
    expect((await check(path)).map(({ isSound, detail }) => [isSound, detail])).toEqual([
      [true, "ok"],
      [true, "ok"],
      [false, reason],
      [true, "ok"],
    ]);
    const warnings: string[] = [];
    const store = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
    expect(warnings).toEqual([
      `all stored events were deleted, because ${reason}: clients that reconnect load the list again`,
    ]);
    const { todos, position } = await read(await store.list({}));
    expect([todos.length, position.sequence]).toEqual([4, 5]);
    expect(position.epoch).not.toBe(epoch);
    expect(await Array.fromAsync(eachEvent(store, { ...position, sequence: 4 }))).toEqual([]);
    await store.insert("later");
    expect((await eachEvent(store, position).next()).value?.position.sequence).toBe(6);
    await store.close();
    expect((await check(path)).map(({ detail }) => detail)).toEqual(Array(4).fill("ok"));
    await (await openSqlite(path, { onWarning: expect.unreachable })).close();
  });
});

test.each([
  "id = 3",
  "title_hash = key_hash",
  "created_at = created_at + 1",
  "created_at = 9e15",
  "key_hash = 'x'",
])("a store starts without a damaged idempotency key, and with a warning: %s", async (change) => {
  const path = await makeStore();
  const store = await openSqlite(path);
  const made = [await store.insert("a", "first"), await store.insert("a", "second")];
  await store.close();
  run(path, `UPDATE idempotency_records SET ${change} WHERE id = ${made[0]?.id}`);
  expect((await check(path)).map(({ isSound }) => isSound)).toEqual([true, true, false, true]);
  const warnings: string[] = [];
  const again = await openSqlite(path, { onWarning: (message) => warnings.push(message) });
  expect(warnings).toEqual([
    "1 damaged idempotency keys were deleted: a repeated request may create a second to-do",
  ]);
  expect((await again.insert("a", "second")).id).toBe(made[1]?.id ?? 0n);
  expect((await again.insert("a", "first")).id).toBe((made[1]?.id ?? 0n) + 1n);
  await again.close();
  expect((await check(path)).map(({ detail }) => detail)).toEqual(Array(4).fill("ok"));
});

test.each([
  ["an API key created at a time that is no date", "UPDATE keys SET created_at = -9e15 WHERE name = 'bob'"],
  ["an API key that expires at a time that is no date", "UPDATE keys SET expires_at = 9e15"],
  ["an API key with a lifetime that ends at no date", "UPDATE keys SET lifetime = 8e15"],
  ["two rows in its table store", "INSERT INTO store SELECT * FROM store"],
  ["a negative last id", "DELETE FROM todos; UPDATE store SET last_id = -5"],
  ["a negative sequence", "UPDATE store SET sequence = -10"],
  ["a sequence that is too great", "UPDATE store SET sequence = 9223372036854775000"],
  ["a negative number of transactions", "UPDATE store SET transactions = -1"],
  ["a number of transactions that is too great", "UPDATE store SET transactions = 9007199254740993"],
])("a server, a check and a restore refuse a store with %s", async (_what, sql) => {
  const path = await makeStore();
  run(path, sql);
  rmSync(`${path}-mark`);
  expect(await refusal(path)).toStartWith(`${path}: it is damaged (`);
  expect((await check(path)).slice(0, 2).map(({ isSound }) => isSound)).toEqual([true, false]);
  const { message } = await errorOf(restore(newPath(), path, { signal: new AbortController().signal }));
  expect(message).toStartWith(`${path}: it is damaged (`);
});

test("openSqlite refuses a store with invalid to-dos", async () => {
  const path = await makeStore();
  run(path, "UPDATE todos SET json = 'a' WHERE id = 1");
  expect(await refusal(path)).toContain("1 of its to-dos are invalid");
});

test("check reports an empty file as damaged, although a server starts on it", async () => {
  const path = newPath();
  writeFileSync(path, "");
  expect(await check(path)).toEqual([
    {
      name: "structure",
      isSound: false,
      detail: "it is empty: put the right files back, or restore a backup with todo restore",
    },
  ]);
  expect(await probeSqlite(path)).toMatchObject({ isLocked: false });
  await reopen(path);
});

test("the checksum matches the contents after every sequence of writes", async () => {
  const write = fc.oneof(
    fc.record({ type: fc.constant("insert" as const), title: fc.string({ unit: "binary", minLength: 1 }) }),
    fc.record({ type: fc.constant("setDone" as const), id: fc.bigInt(1n, 6n), done: fc.boolean() }),
    fc.record({ type: fc.constant("delete" as const), id: fc.bigInt(1n, 6n) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(write, { maxLength: 10 }), { maxLength: 4 }), async (batches) => {
      const path = newPath();
      const store = await openSqlite(path);
      for (const batch of batches) {
        // Concurrent writes share a batch.
        await Promise.all(
          batch.map((one) => {
            if (one.type === "insert") return store.insert(one.title);
            return one.type === "delete" ? store.delete(one.id) : store.setDone(one.id, one.done);
          }),
        );
      }
      await store.close();
      await reopen(path);
    }),
    { numRuns: 15 },
  );
});

test("the checksum matches the contents after changes to API keys by the server and by a command", async () => {
  const path = await makeStore();
  const server = await openSqlite(path);
  const beside = openSqliteKeys(path, { createIfMissing: false, onWarning: expect.unreachable });
  for (const { keys } of [server, beside]) {
    const name = keys === server.keys ? "carol" : "dave";
    expect(await keys.insert(key(name))).toBe(true);
    expect(await keys.insert(key(name))).toBe(false);
    await keys.recordUse(key(name).id, 7);
    const successor = {
      ...key(name),
      id: `${name}'s second`,
      tokenHash: new Uint8Array(32).fill(name.length),
    };
    expect(await keys.replace(key(name).id, 9, successor)).toBe(true);
    expect(await keys.replace("missing", 9, successor)).toBe(false);
    expect(await keys.delete(key(name).id)).toBe(true);
    expect(await keys.delete("missing")).toBe(false);
    await server.insert("between");
  }
  expect((await server.keys.list()).map(({ id }) => id)).not.toContain(key("carol").id);
  beside.close();
  const { todos } = await read(await server.list({}));
  await server.close();
  const again = await openSqlite(path);
  expect((await read(await again.list({}))).todos).toEqual(todos);
  await again.close();
});
