import { expect, test } from "bun:test";
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
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
import { openSqliteKeys } from "./keys.ts";
import { acquireLock } from "./lock.ts";
import { openSqlite } from "./store.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);

const NOW = Date.UTC(2026, 0, 2);
const HOUR = 60 * 60 * 1000;

async function made(keys: KeyStore, name: string, lifetime?: number): Promise<MintedKey> {
  const minted = await createKey(keys, name, lifetime, NOW);
  if (minted === undefined) throw new Error(`no key was made for ${name}`);
  return minted;
}

const namesAt = (now: number, token: string, ...stores: readonly { readonly keys: KeyStore }[]) =>
  Promise.all(stores.map(async ({ keys }) => (await createKeyLookup(keys, () => now)(token))?.name));

/** Returns a store of a server, and the API keys of its file as commands use them: each call opens the file. */
async function openTwice(path: string) {
  const served = await openSqlite(path);
  async function run<T>(use: (keys: KeyStore) => Awaitable<T>): Promise<T> {
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false });
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

keyContract("the keys of a file", async () => openSqliteKeys(newPath(), { createIfMissing: true }));

keyContract("the keys of a file that is being served", async () => {
  const { served, beside, [Symbol.asyncDispose]: close } = await openTwice(newPath());
  // Alternates between the two.
  const turn = turns(served.keys, beside.keys);
  const keys: KeyStore = {
    find: (tokenHash) => turn().find(tokenHash),
    list: () => served.keys.list(),
    insert: (key, ended) => turn().insert(key, ended),
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

test("a command that changes keys while a server starts ends when the server uses the change", async () => {
  const path = newPath();
  const first = await openSqlite(path);
  await first.insert("a");
  await first.close();
  const { keys, close } = openSqliteKeys(path, { createIfMissing: false });
  let closed: Promise<void> | undefined;
  const onProgress = (): void => {
    if (closed !== undefined) return;
    keys.insert({ id: "k1", name: "ci", tokenHash: hashToken("token"), createdAt: NOW, scope: "read" });
    closed = Promise.resolve(close());
  };
  const server = await openSqlite(path, { onProgress });
  await closed;
  expect((await server.keys.find(hashToken("token")))?.name).toBe("ci");
  await server.close();
});

test("a command reports a change that the server does not confirm, and says when it holds", async () => {
  const path = newPath();
  await (await openSqlite(path)).close();
  const { keys, close } = openSqliteKeys(path, { createIfMissing: false });
  await made(keys, "ci");
  // Like a server that does not answer.
  using _ = acquireLock(path);
  expect((await errorOf(close())).message).toBe(
    "the change is stored, but the server has not confirmed it within 10 seconds: it holds when the server answers again, or after a restart",
  );
});

test("a command reports a change of a store that was replaced meanwhile", async () => {
  const [path, other] = [newPath(), newPath()];
  const { keys, close } = openSqliteKeys(path, { createIfMissing: true });
  await made(keys, "ci");
  await (await openSqlite(other)).close();
  renameSync(other, path);
  expect((await errorOf(close())).message).toBe(`${path} was replaced while the command ran: run it again`);
});

test.each(["server", "command"])("an old store that lacks a change by a %s does not start", async (who) => {
  const path = newPath();
  await (await openSqlite(path)).close();
  const old = readFileSync(path);
  if (who === "server") {
    const server = await openSqlite(path);
    await made(server.keys, "ci");
    await server.close();
  } else {
    const { keys, close } = openSqliteKeys(path, { createIfMissing: false });
    await made(keys, "ci");
    await close();
  }
  writeFileSync(path, old);
  expect((await errorOf(openSqlite(path))).message).toContain("its last change is missing");
  expect(() => openSqliteKeys(path, { createIfMissing: false })).toThrow("its last change is missing");
});

test("a key that a command has made or revoked is valid or not when the command ends", async () => {
  const path = newPath();
  const server = await openSqlite(path);
  const open = () => openSqliteKeys(path, { createIfMissing: false });
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
  const beside = openSqliteKeys(path, { createIfMissing: false });
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

test("openSqliteKeys creates a missing file, and a schema in an empty one, only if `createIfMissing` is true", async () => {
  const [missing, empty] = [newPath(), newPath()];
  await Bun.write(empty, "");
  const filesAt = (path: string) => readdirSync(folder).filter((name) => name.startsWith(basename(path)));
  for (const [path, said] of [
    [missing, `${missing} does not exist: check the path of the store`],
    [empty, `${empty}: it is empty: check the path of the store, or restore a backup with todo restore`],
  ] as const) {
    const before = filesAt(path);
    expect(() => openSqliteKeys(path, { createIfMissing: false })).toThrow(said);
    expect([filesAt(path), Bun.file(path).size]).toEqual([before, 0]);
    const { keys, close } = openSqliteKeys(path, { createIfMissing: true });
    const { token } = await made(keys, "ci");
    await close();
    const store = await openSqlite(path);
    expect(await namesAt(NOW, token, store)).toEqual(["ci"]);
    expect((await store.insert("a")).id).toBe(1n);
    await store.close();
  }
});

test("openSqliteKeys creates a file once across concurrent processes", async () => {
  const path = newPath();
  const source = `
    import { openSqliteKeys } from ${JSON.stringify(join(import.meta.dir, "keys.ts"))};
    import { createKey } from ${JSON.stringify(join(import.meta.dir, "../../credential/key.ts"))};
    const opened = openSqliteKeys(process.argv[1], { createIfMissing: true });
    await createKey(opened.keys, process.argv[2], undefined, ${NOW});
    opened.close();`;
  const processes = Array.from({ length: 8 }, (_, i) =>
    Bun.spawn([process.execPath, "-e", source, path, `${i}`], { stderr: "pipe" }),
  );
  const said = await Promise.all(processes.map(({ stderr }) => new Response(stderr).text()));
  expect(said.join("")).toBe("");
  const keys = openSqliteKeys(path, { createIfMissing: false });
  expect(await keys.keys.list()).toHaveLength(8);
  keys.close();
});
