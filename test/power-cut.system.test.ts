import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFile, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { integrity } from "./integrity.ts";
import { copyWithoutFsync } from "./patched-copy.ts";
import { skipFor } from "./skip.ts";
import { read } from "./store-contract.ts";
import { type Call, isCreated, isSync, syncs, tracePosts, whyUntraceable } from "./strace.ts";
import { temporaryFolder } from "./temporary.ts";

const CUTS = Number(process.env.TODO_TEST_POWER_CUTS ?? 30);
/** The unit that a disk writes atomically (a sector). */
const SECTOR = 512;
/** With ten more transactions, the server moves the log to the database. So does its next start. */
const ALMOST_MOVED = 190;

setDefaultTimeout(120_000 + CUTS * 300);
const folder = temporaryFolder();

describe.skipIf(skipFor(whyUntraceable))("a power cut", () => {
  test.each<[when: string, logged: number, inject: string | undefined]>([
    ["while a new database is written", 0, undefined],
    ["around a checkpoint of the log", ALMOST_MOVED, undefined],
    ["after some calls of fsync have failed", ALMOST_MOVED, "fsync,fdatasync:error=EIO:when=5+4"],
  ])("%s loses no acknowledged write", async (when, logged, inject) => {
    const path = join(folder, when, "todos.db");
    const before = await makeStore(path, logged);
    const disk = await Disk.of(dirname(path));
    const { calls, titles } = await tracePosts(path, undefined, inject);
    expect(calls.filter((call) => syncs(call, path)).length).toBeGreaterThan(0);

    const cuts = Array.from({ length: CUTS }, () => Math.floor(Math.random() * calls.length));
    const acknowledged = new Map(before);
    for (const [index, call] of calls.entries()) {
      if (isCreated(call)) noteCreated(call, acknowledged);
      disk.apply(call);
      for (const cut of cuts.filter((cut) => cut === index)) {
        // Nothing beyond the synced data; a random part of the rest; or all of it, as after kill -9.
        const todos = await todosAfterCut(disk, [0, 0.5, 1][cut % 3] ?? 0);
        expect([...acknowledged].filter(([id, title]) => todos[Number(id) - 1] !== title)).toEqual([]);
      }
    }
    expect(acknowledged.size).toBe(before.size + titles.length);
    expect(calls.some(({ name, result }) => name === "fsync" && result < 0)).toBe(inject !== undefined);
  });

  test("loses acknowledged writes if fsync is skipped", async () => {
    const path = join(folder, "lax", "todos.db");
    await makeStore(path, 0);
    const disk = await Disk.of(dirname(path));
    const { calls } = await tracePosts(path, await copyWithoutFsync(join(folder, "copy")));
    for (const call of calls) disk.apply(call);
    expect((await todosAfterCut(disk, 0)).length).toBeLessThan(calls.filter(isCreated).length / 2);
  });
});

/** Makes the folder of a store as a killed server leaves it when its log has this number of transactions. */
async function makeStore(path: string, logged: number): Promise<Map<bigint, string>> {
  await mkdir(dirname(path));
  const titles = new Map<bigint, string>();
  if (logged === 0) return titles;
  const source = `${dirname(path)}-source.db`;
  const store = await openSqlite(source);
  while (titles.size < logged) {
    const title = `${titles.size}`;
    titles.set((await store.insert(title)).id, title);
  }
  for (const suffix of ["", "-wal", "-mark"]) await copyFile(source + suffix, path + suffix);
  await store.close();
  return titles;
}

function noteCreated({ args }: Call, acknowledged: Map<bigint, string>): void {
  const [, id, title] = /\{"id":(\d+),"title":"([^"]+)"/.exec(args) ?? [];
  if (id === undefined || title === undefined) throw new Error(`no to-do in ${args}`);
  acknowledged.set(BigInt(id), title);
}

async function todosAfterCut(disk: Disk, chance: number): Promise<string[]> {
  const copy = await mkdtemp(join(folder, "after-"));
  await disk.cut(copy, chance);
  const path = join(copy, "todos.db");
  const store = await openSqlite(path);
  const { todos } = await read(await store.list({}));
  await store.close();
  expect(integrity(path)).toBe("ok");
  expect(todos.map(({ id }) => Number(id))).toEqual(todos.map((_, index) => index + 1));
  await rm(copy, { recursive: true });
  return todos.map(({ title }) => title);
}

type Change = { readonly at: number; readonly bytes: Buffer } | { readonly length: number };

/** A folder as system calls have left it, and the part of it that a power cut would leave. */
class Disk {
  readonly #folder: string;
  readonly #files = new Map<string, { synced: Buffer; changes: Change[] }>();
  #names = new Set<string>();
  #syncedNames: ReadonlySet<string> = new Set();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Treats a folder with all its contents as synced. */
  static async of(folder: string): Promise<Disk> {
    const disk = new Disk(folder);
    for (const name of await readdir(folder)) {
      disk.#files.set(name, { synced: Buffer.from(await Bun.file(join(folder, name)).bytes()), changes: [] });
      disk.#names.add(name);
    }
    disk.#syncedNames = new Set(disk.#names);
    return disk;
  }

  apply(call: Call): void {
    const [, path = ""] = /^(?:AT_FDCWD<[^>]*>, )?(?:\d+<|")([^>"]+)/.exec(call.args) ?? [];
    if (syncs(call, this.#folder)) this.#syncedNames = new Set(this.#names);
    if (dirname(path) !== this.#folder || (call.result < 0 && !isSync(call))) return;
    const name = basename(path);
    const file = this.#files.get(name);
    if (call.name === "openat" && call.args.includes("O_CREAT") && !this.#names.has(name)) {
      this.#names.add(name);
      this.#files.set(name, { synced: Buffer.alloc(0), changes: [] });
    } else if (call.name === "unlink") this.#names.delete(name);
    else if (file !== undefined && isSync(call)) {
      // After a failure, Linux drops what it could not write, and later calls succeed nevertheless.
      const written = call.result < 0 ? file.changes.flatMap(sectorsOf).filter(byChance(0.5)) : file.changes;
      file.synced = withChanges(file.synced, written);
      file.changes = [];
    } else if (call.name === "pwrite64" || call.name === "ftruncate") file?.changes.push(changeOf(call));
  }

  /** Writes to a folder what is synced, and at random each sector and each name that is not. */
  async cut(to: string, chance: number): Promise<void> {
    const isLeft = byChance(chance);
    for (const [name, { synced, changes }] of this.#files) {
      const names = isLeft() ? this.#names : this.#syncedNames;
      const left = changes.flatMap(sectorsOf).filter(isLeft);
      if (names.has(name)) await Bun.write(join(to, name), withChanges(synced, left));
    }
  }
}

const byChance = (chance: number) => (): boolean => Math.random() < chance;

function changeOf({ name, args, result }: Call): Change {
  if (name === "ftruncate") return { length: Number(/\d+$/.exec(args)?.[0]) };
  const [, bytes = "", at] = /^[^"]*"([\s\S]*)", \d+, (\d+)$/.exec(args) ?? [];
  return { at: Number(at), bytes: Buffer.from(bytes, "latin1").subarray(0, result) };
}

function withChanges(content: Buffer, changes: readonly Change[]): Buffer {
  const lengths = changes.map((change) =>
    "length" in change ? change.length : change.at + change.bytes.length,
  );
  const next = Buffer.alloc(Math.max(content.length, ...lengths));
  content.copy(next);
  let { length } = content;
  for (const change of changes) {
    if ("length" in change) next.fill(0, change.length);
    else change.bytes.copy(next, change.at);
    length = "length" in change ? change.length : Math.max(length, change.at + change.bytes.length);
  }
  return next.subarray(0, length);
}

function sectorsOf(change: Change): Change[] {
  if ("length" in change) return [change];
  const sectors: Change[] = [];
  for (let from = 0; from < change.bytes.length; ) {
    const to = from + SECTOR - ((change.at + from) % SECTOR);
    sectors.push({ at: change.at + from, bytes: change.bytes.subarray(from, to) });
    from = to;
  }
  return sectors;
}
