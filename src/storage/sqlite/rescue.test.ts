import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import {
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { errorOf, refusalOf } from "../../../test/rejection.ts";
import { read } from "../../../test/store-contract.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { until } from "../../../test/until.ts";
import { createKey } from "../../credential/key.ts";
import type { Store, StoreOptions } from "../store.ts";
import { openSqliteKeys } from "./keys.ts";
import { restore } from "./maintenance/backup.ts";
import { Rescue } from "./rescue.ts";
import { openSqlite } from "./store.ts";
import { restoreCommand } from "./ways-out.ts";

const folder = temporaryFolder();
let files = 0;
const { signal } = new AbortController();

function newPath(): string {
  const own = join(folder, String(++files));
  mkdirSync(own);
  return join(own, "todos.db");
}

const rescueFiles = (path: string): string[] => globSync(`${path}.rescue-*.ndjson`);

/** Opens a store and inserts two to-dos. */
async function serve(path: string, options: StoreOptions = {}): Promise<Store> {
  const store = await openSqlite(path, options);
  for (const title of ["a", "b"]) await store.insert(title, `key ${title}`);
  return store;
}

async function rescued(store: Store): Promise<string> {
  await until(() => store.rescueFile !== undefined, "there is a rescue file");
  return store.rescueFile ?? "";
}

const hashOf = (token: string): Uint8Array => createHash("sha256").update(token).digest();

test("a store whose files are wrong saves everything in a private file, which restore accepts", async () => {
  const path = join(dirname(newPath()), "my to-dos.db");
  const warnings: string[] = [];
  const store = await serve(path, { onWarning: (message) => warnings.push(message) });
  await store.delete(2n);
  const { token = "" } = (await createKey(store.keys, "ci", undefined, 1)) ?? {};
  truncateSync(path);
  expect(await refusalOf(store)).toMatchObject({ code: "store_unavailable" });
  const file = await rescued(store);
  expect(dirname(file)).toBe(dirname(path));
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(warnings).toEqual([
    `another program has changed ${path} (it is empty). Put the right files back. If you cannot, stop the server, run todo restore '${file}' --store 'sqlite:${path}', and start the server: that file has everything that the server holds`,
  ]);
  expect(await errorOf(store.checkWrites?.())).toMatchObject({
    detail: expect.stringContaining(basename(file)),
  });
  const found = await store.keys.find(hashOf(token));
  expect(found?.name).toBe("ci");
  await store.close();
  expect(rescueFiles(path)).toEqual([file]);
  expect(await restore(path, file, { signal })).toMatchObject({ todos: 1, movedTo: expect.any(String) });
  const again = await openSqlite(path);
  expect((await again.insert("a", "key a")).id).toBe(1n);
  expect((await again.insert("c")).id).toBe(3n);
  expect((await again.keys.find(hashOf(token)))?.name).toBe("ci");
  await again.close();
});

test("a store whose files are wrong does not find an API key that a command had revoked before", async () => {
  const path = newPath();
  const store = await serve(path);
  const { token = "", key } = (await createKey(store.keys, "ci", undefined, 1)) ?? {};
  const beside = openSqliteKeys(path, { createIfMissing: false });
  await beside.keys.delete(key?.id ?? "");
  await beside.close();
  expect(await store.keys.find(hashOf(token))).toBeUndefined();
  renameSync(path, `${path}.elsewhere`);
  await refusalOf(store);
  const file = await rescued(store);
  expect(await store.keys.find(hashOf(token))).toBeUndefined();
  expect(readFileSync(file, "utf8")).not.toContain('"name":"ci"');
  await store.close();
});

test("a store that closes while its files are wrong saves everything first", async () => {
  const path = newPath();
  const store = await serve(path);
  truncateSync(`${path}-wal`, 4096);
  await store.close();
  const [file = ""] = rescueFiles(path);
  expect(await restore(path, file, { signal })).toMatchObject({ todos: 2 });
});

test("a rescue file has the API keys of commands, and no writes after it", async () => {
  const path = newPath();
  const warnings: string[] = [];
  const store = await serve(path, { onWarning: (message) => warnings.push(message) });
  const beside = openSqliteKeys(path, { createIfMissing: false });
  await createKey(beside.keys, "beside", undefined, 1);
  await beside.close();
  await createKey(store.keys, "own", undefined, 1);
  const database = readFileSync(path);
  renameSync(path, `${path}.elsewhere`);
  await refusalOf(store);
  const first = await rescued(store);
  expect(readFileSync(first, "utf8")).toContain('"name":"beside"');
  renameSync(`${path}.elsewhere`, path);
  expect(readFileSync(path)).toEqual(database);
  await store.insert("d");
  expect(store.rescueFile).toBeUndefined();
  expect(warnings.at(-1)).toBe(
    `the files of the store are right again: do not restore ${first}.old, which lacks later changes`,
  );
  expect(readFileSync(`${first}.old`, "utf8")).toContain('"name":"beside"');
  rmSync(`${path}-lock`);
  await store.close();
  const [second = "", ...others] = rescueFiles(path);
  expect(others).toEqual([]);
  expect(await restore(path, second, { signal })).toMatchObject({ todos: 3 });
});

test("a store that closes with the right files leaves no rescue file that a later start would name", async () => {
  const path = newPath();
  const store = await serve(path);
  renameSync(path, `${path}.elsewhere`);
  await refusalOf(store);
  await rescued(store);
  renameSync(`${path}.elsewhere`, path);
  await store.close();
  expect(rescueFiles(path)).toEqual([]);
});

test("a rescue file that was announced stays when a server stops whose files are wrong", async () => {
  const path = newPath();
  const store = await serve(path);
  // SQLite still has it open, and moves it to the database.
  rmSync(`${path}-wal`);
  await refusalOf(store);
  const file = await rescued(store);
  await store.close();
  expect(rescueFiles(path)).toEqual([file]);
});

test("a rescue file is removed if the files are right when it is complete", async () => {
  const path = newPath();
  const warnings: string[] = [];
  let count = 0;
  let isNeeded = true;
  const rescue = new Rescue({
    path,
    otherFolder: undefined,
    isNeeded: () => isNeeded,
    contents: () => {
      count++;
      isNeeded = true;
      return {
        lastId: BigInt(count),
        count,
        todos: (function* () {
          if (count === 1) isNeeded = false;
          yield Array.from({ length: count }, (_, i) => `{"id":${i + 1},"title":"a","done":false}`);
        })(),
        keys: [],
        idempotencyRecords: [],
      };
    },
    onWarning: (message) => warnings.push(message),
  });
  const failure = new Error("the files are gone");
  expect([await rescue.save(failure), await rescue.save(failure)]).toEqual([false, true]);
  expect(rescueFiles(path)).toEqual([rescue.file ?? ""]);
  expect(readFileSync(rescue.file ?? "", "utf8")).toContain('"todos":2');
  expect(warnings).toEqual([expect.stringContaining(rescue.file ?? "no file")]);
});

test("a store whose damage a write has found accepts no other write until it is repaired", async () => {
  const path = newPath();
  const store = await serve(path);
  using other = new Database(path);
  other.run("ALTER TABLE idempotency_records RENAME TO elsewhere");
  await errorOf(store.insert("c", "key c"));
  await errorOf(store.insert("c"));
  const file = await rescued(store);
  await errorOf(store.checkWrites?.());
  expect(rescueFiles(path)).toEqual([file]);
  other.run("ALTER TABLE elsewhere RENAME TO idempotency_records");
  await store.insert("c", "key c");
  expect(rescueFiles(path)).toEqual([]);
  await store.close();
});

test("a file that is put back within a second needs no rescue file", async () => {
  const path = newPath();
  const store = await serve(path);
  renameSync(path, `${path}.elsewhere`);
  await refusalOf(store);
  renameSync(`${path}.elsewhere`, path);
  await store.insert("d");
  await store.close();
  expect(rescueFiles(path)).toEqual([]);
});

test("a rescue file is written to another folder if that of the store is gone, or the warning says not to stop", async () => {
  const other = join(folder, "other");
  const path = newPath();
  const warnings: string[] = [];
  const store = await serve(path, { rescueFolder: other, onWarning: (message) => warnings.push(message) });
  renameSync(dirname(path), `${dirname(path)}.elsewhere`);
  await refusalOf(store);
  await until(() => warnings.length > 0, "there is a warning");
  expect(warnings[0]).toStartWith("do not stop the server");
  mkdirSync(other);
  const file = await rescued(store);
  expect(dirname(file)).toBe(other);
  await store.close();
  renameSync(`${dirname(path)}.elsewhere`, dirname(path));
  await restore(path, file, { signal });
  const again = await openSqlite(path);
  expect((await read(await again.list({}))).todos.map(({ title }) => title)).toEqual(["a", "b"]);
  await again.close();
});

test("a store that closes without its folder warns once, and says that the to-dos are lost", async () => {
  const path = newPath();
  const warnings: string[] = [];
  const store = await serve(path, { onWarning: (message) => warnings.push(message) });
  rmSync(dirname(path), { recursive: true });
  expect((await errorOf(store.close())).message).toStartWith(
    "no rescue file could be written, so the to-dos that only memory had are lost: ",
  );
  expect(warnings).toEqual([expect.stringContaining("curl SERVER/api/todos > todos.json")]);
});

test("an old copy of the whole store, mark included, does not start after a server has noticed it", async () => {
  const path = newPath();
  const store = await serve(path);
  const old = ["", "-wal", "-mark"].map((suffix) => [path + suffix, readFileSync(path + suffix)] as const);
  await store.insert("c");
  for (const [file, bytes] of old) writeFileSync(file, bytes);
  await refusalOf(store);
  await store.close();
  const [rescue = ""] = rescueFiles(path);
  expect((await errorOf(openSqlite(path))).message).toContain(
    `its last transaction is missing, with one or more acknowledged changes: put the right files back, run ${restoreCommand(rescue, path)}`,
  );
});
