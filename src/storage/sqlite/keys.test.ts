import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { errorOf } from "../../../test/rejection.ts";
import { keyContract } from "../../../test/store-contract.ts";
import { storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import type { Awaitable } from "../../awaitable.ts";
import {
  createKey,
  createKeyLookup,
  type KeyStore,
  type MintedKey,
  rotateKey,
} from "../../credential/key.ts";
import { hashToken } from "../../credential/token.ts";
import { WorkerThread } from "../../worker-thread.ts";
import { openSqliteKeys } from "./keys.ts";
import { acquireLock } from "./lock.ts";
import { lockOrRefuse } from "./maintenance/access.ts";
import { probeSqlite } from "./maintenance/check.ts";
import { openDatabase } from "./open.ts";
import { openSqlite } from "./store.ts";
import { storeRow } from "./store-row.ts";
import { WriterClient, type WriterReply, type WriterRequest } from "./writer-client.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

/** For stores whose high-water mark can be written. */
const failOnWarning = (message: string): never => {
  throw new Error(message);
};

const NOW = Date.UTC(2026, 0, 2);
const HOUR = 60 * 60 * 1000;

async function made(keys: KeyStore, name: string, lifetime?: number): Promise<MintedKey> {
  const minted = await createKey(keys, name, lifetime, NOW);
  if (minted === undefined) throw new Error(`no key was made for ${name}`);
  return minted;
}

/** Returns the client that holds a token, according to each store. */
const namesAt = (now: number, token: string, ...stores: readonly { readonly keys: KeyStore }[]) =>
  Promise.all(stores.map(async ({ keys }) => (await createKeyLookup(keys, () => now)(token))?.name));

/** Returns a store of a server, and the API keys of its file as commands use them: each call opens the file. */
async function openTwice(path: string) {
  const served = await openSqlite(path);
  async function run<T>(use: (keys: KeyStore) => Awaitable<T>): Promise<T> {
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
    const result = await use(keys);
    const closed = close();
    // The server notices the change within a second, or with its next request.
    await served.keys.delete("absent");
    await closed;
    return result;
  }
  const keys: KeyStore = {
    find: (tokenHash) => run((beside) => beside.find(tokenHash)),
    list: () => run((beside) => beside.list()),
    insert: (...given) => run((beside) => beside.insert(...given)),
    replace: (...given) => run((beside) => beside.replace(...given)),
    delete: (id) => run((beside) => beside.delete(id)),
    rename: (...given) => run((beside) => beside.rename(...given)),
    recordUse: () => {},
  };
  return { served, beside: { keys }, [Symbol.asyncDispose]: async () => served.close() };
}

keyContract("the keys of a file", async () =>
  openSqliteKeys(newPath(), { createIfMissing: true, onWarning: failOnWarning }),
);

keyContract("the keys of a file that is being served", async () => {
  const { served, beside, [Symbol.asyncDispose]: close } = await openTwice(newPath());
  // Alternates between the two.
  const turn = turns(served.keys, beside.keys);
  const keys: KeyStore = {
    find: (tokenHash) => turn().find(tokenHash),
    list: () => served.keys.list(),
    insert: (key, usedLink) => turn().insert(key, usedLink),
    replace: (id, expiresAt, successor) => turn().replace(id, expiresAt, successor),
    delete: (id) => turn().delete(id),
    rename: (id, name) => turn().rename(id, name),
    recordUse: (id, usedAt) => served.keys.recordUse(id, usedAt),
  };
  return { keys, close };
});

function turns<T>(one: T, other: T): () => T {
  let count = 0;
  return () => (count++ % 2 === 0 ? one : other);
}

test("the use of a deleted key makes the writer thread read nothing", async () => {
  const path = newPath();
  const store = await openSqlite(path);
  await store.insert("first");
  await store.close();
  utimesSync(path, 1, 1);
  using lock = acquireLock(path);
  using database = openDatabase(path, "readOnly");
  const { id } = storeRow(database);
  const writer = await WriterClient.start({ path, id, lock: lock.identity, maxEvents: 10 }, failOnWarning);
  // Only a reader of the contents notices this.
  writeFileSync(path, readFileSync(path, "latin1").replaceAll("first", "other"), "latin1");
  utimesSync(path, 1, 1);
  const change = { type: "recordUses", uses: new Map([["deleted", NOW]]) } as const;
  expect(await writer.request({ type: "changeKeys", change })).toBe(false);
  await writer.close(true);
});

test("a command that changes keys does not wait for a server that starts, which uses the change", async () => {
  const path = newPath();
  await (await openSqlite(path)).close();
  const { keys, close } = openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
  let closed: Promise<void> | undefined;
  // The load asks for the time after it has read the API keys.
  const now = (): number => {
    if (closed !== undefined) return NOW;
    keys.insert({ id: "k1", name: "ci", tokenHash: hashToken("token"), createdAt: NOW, scope: "read" });
    closed = Promise.resolve(close());
    expect(readFileSync(`${path}-mark`, "utf8")).toContain(` ${"1".padStart(16, "0")} `);
    return NOW;
  };
  const server = await openSqlite(path, { now });
  await closed;
  expect((await server.keys.find(hashToken("token")))?.name).toBe("ci");
  await server.close();
});

test("a command reports a change that the server does not confirm, and says when it holds", async () => {
  const path = newPath();
  const server = await openSqlite(path);
  await server.insert("a");
  rmSync(`${path}-mark`);
  mkdirSync(`${path}-mark`);
  const { keys, close } = openSqliteKeys(path, { createIfMissing: false, onWarning: () => {} });
  await made(keys, "ci");
  expect((await errorOf(close())).message).toBe(
    "the change is stored, but the server has not confirmed it within 5 seconds: it holds when the server answers again, or after a restart",
  );
  await server.close();
});

test.each([
  ["zeros", Buffer.alloc(4096)],
  ["half a page", Buffer.concat([Buffer.from("SQLite format 3\0"), Buffer.alloc(100, 7)])],
])(
  "a power cut that left %s in the lock file keeps neither a command nor a server out",
  async (_what, bytes) => {
    const path = newPath();
    await (await openSqlite(path)).close();
    writeFileSync(`${path}-lock`, bytes);
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
    await made(keys, "ci");
    await close();
    expect(await probeSqlite(path)).toMatchObject({ isLocked: false });
    const server = await openSqlite(path);
    expect((await server.keys.list()).map(({ name }) => name)).toEqual(["ci"]);
    expect(() => acquireLock(path)).toThrow("is in use by another server");
    await server.close();
  },
);

test("a command reports a change of a store that was replaced meanwhile", async () => {
  const path = newPath();
  const { keys, close } = openSqliteKeys(path, { createIfMissing: true, onWarning: failOnWarning });
  await made(keys, "ci");
  const other = newPath();
  await (await openSqlite(other)).close();
  using lock = lockOrRefuse(path);
  const closed = errorOf(close());
  renameSync(other, path);
  lock.close();
  expect((await closed).message).toBe(`${path} was replaced while the command ran: run it again`);
});

test("the writer thread writes the mark of a command's change only when the server uses the change", async () => {
  const path = newPath();
  const { keys, close } = openSqliteKeys(path, { createIfMissing: true, onWarning: failOnWarning });
  using lock = acquireLock(path);
  using database = openDatabase(path, "readOnly");
  const options = { path, id: storeRow(database).id, lock: lock.identity, maxEvents: 10 };
  const thread = new WorkerThread<WriterRequest, WriterReply>(new URL("./writer.worker.ts", import.meta.url));
  await thread.request({ type: "open", options });
  await thread.request({ type: "confirmKeys" });
  const { key } = await made(keys, "ci");
  const reply = await thread.request({ type: "checkFiles" });
  expect(reply.keys).toMatchObject({ stored: [{ id: key.id }], isAwaited: true });
  expect(existsSync(`${path}-mark`)).toBe(false);
  await thread.request({ type: "confirmKeys" });
  expect(readFileSync(`${path}-mark`, "utf8")).toContain(` ${"1".padStart(16, "0")} `);
  await thread.request({ type: "close", areRight: true });
  thread.terminate();
  await close();
});

test("a key that a command has made or revoked is valid or not when the command ends", async () => {
  const path = newPath();
  const server = await openSqlite(path);
  const open = () => openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
  const making = open();
  const { key, token } = await made(making.keys, "ci");
  await making.close();
  expect(await namesAt(NOW, token, server)).toEqual(["ci"]);
  const revoking = open();
  await revoking.keys.delete(key.id);
  await revoking.close();
  expect(await namesAt(NOW, token, server)).toEqual([undefined]);
  await server.close();
});

test("concurrent inserts of one name on both connections create one key", async () => {
  await using twice = await openTwice(newPath());
  const { served, beside } = twice;
  for (let round = 0; round < 20; round++) {
    const [one, other] = await Promise.all(
      [served, beside].map(({ keys }) => createKey(keys, `${round}`, undefined, NOW)),
    );
    expect([one, other].filter((minted) => minted !== undefined)).toHaveLength(1);
  }
  expect(await served.keys.list()).toHaveLength(20);
});

test("keys and to-dos can be created concurrently", async () => {
  await using twice = await openTwice(newPath());
  const { served, beside } = twice;
  const written = Promise.all(Array.from({ length: 2000 }, (_, i) => served.insert(`${i}`)));
  for (let i = 0; i < 50; i++) {
    await made(beside.keys, `beside ${i}`);
    await made(served.keys, `served ${i}`);
  }
  expect(await written).toHaveLength(2000);
  expect(await beside.keys.list()).toHaveLength(100);
});

test("files contain the hash of a token but not the token", async () => {
  const path = newPath();
  const served = await openSqlite(path);
  const ci = await made(served.keys, "ci");
  const rotated = await rotateKey(served.keys, ci.key.id, HOUR, NOW);
  const beside = openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
  const backup = await made(beside.keys, "backup");
  await beside.close();
  const tokens = [ci.token, rotated?.token ?? "", backup.token];
  for (const token of tokens) expect(await namesAt(NOW, token, served)).not.toEqual([undefined]);

  const check = (): readonly string[] => {
    const names = readdirSync(folder).filter((name) => name.startsWith(basename(path)));
    const all = names.map((name) => readFileSync(join(folder, name)));
    for (const token of tokens) {
      const hash = hashToken(token);
      expect(all.some((bytes) => bytes.includes(hash))).toBe(true);
      // The random part of the token, as bytes, hex or base64.
      const secret = Buffer.from(token.slice(5, 48));
      for (const form of [secret, secret.toString("hex"), secret.subarray(0, 42).toString("base64")]) {
        expect(all.some((bytes) => bytes.includes(form))).toBe(false);
      }
    }
    return names;
  };
  expect(check()).toContain(`${basename(path)}-wal`);
  await served.close();
  expect(check()).not.toContain(`${basename(path)}-wal`);
});

test("openSqliteKeys creates a file only if `createIfMissing` is true", async () => {
  const path = newPath();
  expect(() => openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning })).toThrow(
    `${path} does not exist: check the path of the store`,
  );
  expect(readdirSync(folder).filter((name) => name.startsWith(basename(path)))).toEqual([]);
  const keys = openSqliteKeys(path, { createIfMissing: true, onWarning: failOnWarning });
  const { token } = await made(keys.keys, "ci");
  keys.close();
  const store = await openSqlite(path);
  expect(await namesAt(NOW, token, store)).toEqual(["ci"]);
  expect((await store.insert("a")).id).toBe(1n);
  await store.close();
});

test("openSqliteKeys creates a schema in an empty file only if `createIfMissing` is true", async () => {
  const path = newPath();
  await Bun.write(path, "");
  expect(() => openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning })).toThrow(
    `${path}: it is empty: check the path of the store, or restore a backup with todo restore`,
  );
  expect((await Bun.file(path).bytes()).length).toBe(0);
  const { keys, close } = openSqliteKeys(path, { createIfMissing: true, onWarning: failOnWarning });
  await made(keys, "ci");
  close();
});

test("openSqliteKeys rejects an unusable file with the reason", async () => {
  const noDatabase = newPath();
  await Bun.write(noDatabase, "not a database, ".repeat(100));
  expect(() => openSqliteKeys(noDatabase, { createIfMissing: true, onWarning: failOnWarning })).toThrow(
    `${noDatabase}: file is not a database`,
  );
  const newer = newPath();
  openSqliteKeys(newer, { createIfMissing: true, onWarning: failOnWarning }).close();
  const database = new Database(newer);
  database.run("PRAGMA user_version = 99");
  database.close();
  expect(() => openSqliteKeys(newer, { createIfMissing: false, onWarning: failOnWarning })).toThrow(
    "written by a newer version of this program",
  );
  expect(() =>
    openSqliteKeys(join(folder, "no", "folder.db"), { createIfMissing: true, onWarning: failOnWarning }),
  ).toThrow("unable to open database");
});

test("openSqliteKeys creates a file once across concurrent processes", async () => {
  const path = newPath();
  const source = `
    import { openSqliteKeys } from ${JSON.stringify(join(import.meta.dir, "keys.ts"))};
    import { createKey } from ${JSON.stringify(join(import.meta.dir, "../../credential/key.ts"))};
    const opened = openSqliteKeys(process.argv[1], { createIfMissing: true, onWarning: console.error });
    await createKey(opened.keys, process.argv[2], undefined, ${NOW});
    opened.close();`;
  const processes = Array.from({ length: 8 }, (_, i) =>
    Bun.spawn([process.execPath, "-e", source, path, `${i}`], { stderr: "pipe" }),
  );
  const said = await Promise.all(processes.map(({ stderr }) => new Response(stderr).text()));
  expect(said.join("")).toBe("");
  const keys = openSqliteKeys(path, { createIfMissing: false, onWarning: failOnWarning });
  expect(await keys.keys.list()).toHaveLength(8);
  keys.close();
});
