import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import type { StoredKey } from "../src/credential/key.ts";
import { errorMessage } from "../src/error-message.ts";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import type { Store } from "../src/storage/store.ts";
import { eachEvent } from "./store.ts";
import { read } from "./store-contract.ts";
import { temporaryFolder } from "./temporary.ts";

const FLIPS = Number(process.env.TODO_TEST_BIT_FLIPS ?? 60);
const SEED = Number(process.env.TODO_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
const HOUR = 60 * 60 * 1000;
const NOW = Date.now();
// Each bit opens the store up to three times, and a busy machine takes most of a second for that.
setDefaultTimeout(60_000 + FLIPS * 1000);

const folder = temporaryFolder();
const copy = join(folder, "copy.db");

const key = (index: number): StoredKey => ({
  id: `id ${index}`,
  name: `client ${index}`,
  tokenHash: new Uint8Array(32).fill(index),
  scope: index % 3 === 0 ? "read" : "write",
  createdAt: NOW,
  ...(index % 2 === 0 && { expiresAt: NOW + HOUR, lifetime: HOUR }),
});
const KEYS = Array.from({ length: 12 }, (_, index) => key(index));

const title = (i: number): string => `to-do ${i} 😀 ${"x".repeat(i % 90)}`;

/** Writes data of every kind into some pages, and frees some pages. */
async function fill(store: Store): Promise<void> {
  for (let i = 0; i < 120; i++) await store.insert(title(i), `idempotency key ${i}`);
  for (let id = 1n; id <= 120n; id++) {
    if (id % 3n === 0n) await store.setDone(id, true);
    if (id > 40n && id < 100n) await store.delete(id);
  }
  for (const one of KEYS) await store.keys.insert(one);
  await store.keys.replace(KEYS[0]?.id ?? "", NOW + HOUR, key(100));
  await store.keys.delete(KEYS[1]?.id ?? "");
}

/** Returns everything that a damaged bit must not change. */
async function contents(store: Store): Promise<unknown> {
  const { todos, position } = await read(await store.list({}));
  // The last use is informational: no checksum covers it.
  const keys = (await store.keys.list()).map((one) => ({ ...one, lastUsedAt: undefined }));
  const found = await Promise.all(KEYS.map(({ tokenHash }) => store.keys.find(tokenHash)));
  // Each store writes in an epoch of its own.
  return { todos, sequence: position.sequence, keys, found: found.map((one) => one?.id) };
}

/** Returns the stored events as texts, the oldest first; none if the store has dropped them. */
async function replay(store: Store): Promise<string[]> {
  const { epoch, sequence } = await store.position();
  const seen: string[] = [];
  const controller = new AbortController();
  for await (const event of eachEvent(store, { epoch, sequence: 0 }, controller.signal)) {
    const json = event.type === "deleted" ? "" : new TextDecoder().decode(Buffer.from(event.json));
    seen.push(`${event.position.sequence} ${event.type} ${event.id} ${json}`);
    if (event.position.sequence === sequence) controller.abort();
  }
  return seen;
}

/** Checks that each repeated request gets its to-do, or a new one if the store has dropped the idempotency key. */
async function repeatRequests(store: Store, what: string): Promise<void> {
  for (let i = 0; i < 120; i++) {
    const { id } = await store.insert(title(i), `idempotency key ${i}`);
    if (id <= 120n) expect(id, what).toBe(BigInt(i + 1));
  }
}

/** Writes to the store. Returns the contents afterwards; throws if the server would answer 503. */
async function write(store: Store): Promise<unknown> {
  for (let i = 0; i < 30; i++) await store.insert(`later ${i} ${"y".repeat(100)}`);
  await store.setDone(1n, true);
  await store.delete(2n);
  await store.keys.insert(key(200));
  return contents(store);
}

async function openCopy(): Promise<Store | string> {
  try {
    return await openSqlite(copy);
  } catch (error) {
    return errorMessage(error);
  }
}

function* flipped(bytes: Buffer): Generator<{ readonly what: string; readonly bytes: Buffer }> {
  const used = [...bytes.keys()].filter((offset) => bytes[offset] !== 0);
  const offset = fc.oneof(
    { weight: 4, arbitrary: fc.nat(used.length - 1).map((index) => used[index] ?? 0) },
    { weight: 1, arbitrary: fc.nat(bytes.length - 1) },
  );
  const places = fc.sample(fc.noBias(fc.tuple(offset, fc.nat(7))), { numRuns: FLIPS, seed: SEED });
  for (const [flip, [offset, bit]] of places.entries()) {
    const other = Buffer.from(bytes);
    other[offset] = (bytes[offset] ?? 0) ^ (1 << bit);
    yield { what: `seed ${SEED}, flip ${flip}: byte ${offset}, bit ${bit}`, bytes: other };
  }
}

function copyFiles(from: string, to: string): void {
  for (const suffix of ["", "-wal", "-mark", "-shm"]) {
    rmSync(to + suffix, { force: true });
    if (suffix !== "-shm" && existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix);
  }
}

/** Checks that each flipped bit of one file is refused or changes nothing, now and after later writes. */
async function checkFlips(path: string, suffix: string, expected: unknown) {
  const counts = { refused: 0, harmless: 0 };
  const original = readFileSync(path + suffix);
  copyFiles(path, copy);
  const unchanged = await openSqlite(copy);
  const events = await replay(unchanged);
  expect(events.length).toBeGreaterThan(200);
  const reference = await write(unchanged);
  await unchanged.close();
  for (const { what, bytes } of flipped(original)) {
    copyFiles(path, copy);
    writeFileSync(copy + suffix, bytes);
    const store = await openCopy();
    if (typeof store === "string") {
      counts.refused++;
      expect(store, what).not.toContain("\n");
      continue;
    }
    counts.harmless++;
    expect(await contents(store), what).toEqual(expected);
    const replayed = await replay(store);
    expect(replayed, what).toEqual(replayed.length === 0 ? [] : events);
    const after = await write(store).catch(errorMessage);
    await store.close();
    if (typeof after === "string") continue;
    expect(after, what).toEqual(reference);
    const again = await openCopy();
    if (typeof again === "string") throw new Error(`${what}: ${again}`);
    expect(await contents(again), what).toEqual(reference);
    await repeatRequests(again, what);
    await again.close();
  }
  return counts;
}

test(`the store detects or tolerates each of ${FLIPS} changed bits in the database`, async () => {
  const path = join(folder, "todos.db");
  const store = await openSqlite(path);
  await fill(store);
  const expected = await contents(store);
  await store.close();
  const { refused, harmless } = await checkFlips(path, "", expected);
  process.stderr.write(`${FLIPS} bits of the database: ${refused} refused, ${harmless} harmless\n`);
});

test(`the store detects or tolerates each of ${FLIPS} changed bits in the log of a killed server`, async () => {
  const [path, killed] = [join(folder, "running.db"), join(folder, "killed.db")];
  const store = await openSqlite(path);
  // The program moves nothing to the database that another one does not see yet.
  using reader = new Database(path);
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM todos").get();
  await fill(store);
  const expected = await contents(store);
  // A killed server leaves the files as they are now.
  copyFiles(path, killed);
  await store.close();
  const { refused, harmless } = await checkFlips(killed, "-wal", expected);
  process.stderr.write(`${FLIPS} bits of the log: ${refused} refused, ${harmless} harmless\n`);
  expect(refused).toBeGreaterThan(FLIPS / 4);
});
