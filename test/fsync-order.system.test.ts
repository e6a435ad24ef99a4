import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { run } from "./command.ts";
import { copyWithoutFsync } from "./patched-copy.ts";
import { skipFor } from "./skip.ts";
import {
  type Call,
  isCreated,
  isSync,
  syncs,
  type Trace,
  traceCommand,
  tracePosts,
  whyUntraceable,
} from "./strace.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();
const path = join(folder, "todos.db");

describe.skipIf(skipFor(whyUntraceable))("fsync of the write-ahead log", () => {
  test("finishes before each 201 for a to-do of the transaction", async () => {
    const trace = await tracePosts(path);
    expect(acknowledgedTooSoon(trace, path)).toEqual([]);

    const { calls } = trace;
    const made = calls.find(({ name, args }) => name === "openat" && args.includes(`"${path}-wal"`));
    const named = calls.find((call) => syncs(call, folder) && call.began > (made?.ended ?? Number.NaN));
    expect(named?.ended).toBeLessThan(calls.find(isCreated)?.began ?? Number.NaN);
  });

  test("is reported as missing when the server skips it", async () => {
    const copy = await copyWithoutFsync(join(folder, "copy"));
    const lax = join(folder, "lax.db");
    const trace = await tracePosts(lax, copy);
    expect(acknowledgedTooSoon(trace, lax).length).toBeGreaterThan(trace.titles.length / 2);
  });
});

describe.skipIf(skipFor(whyUntraceable))("fsync of a file that is created atomically", () => {
  const source = join(folder, "source.db");
  const from = ["--store", `sqlite:${source}`];
  const made = join(folder, "made");
  beforeAll(async () => {
    const store = await openSqlite(source);
    await store.insert("a");
    await store.close();
  });
  afterEach(() => rm(made, { force: true }));

  const draft = `${made}.part`;
  test.each<[command: string, args: readonly string[], calls: readonly string[]]>([
    ["export", ["export", made, ...from], ["sync draft", "link", "sync folder"]],
    ["backup", ["backup", made, ...from], ["sync draft", "link", "sync folder"]],
    [
      "restore",
      ["restore", source, "--store", `sqlite:${made}`],
      ["sync draft", "sync folder", "rename", "sync folder"],
    ],
    ["users add", ["users", "add", "alice", "--users-file", made], ["sync draft", "rename", "sync folder"]],
  ])(
    "happens before the rename, and fsync of its folder before the end: todo %s",
    async (_, args, expected) => {
      const calls = await traceCommand(args, join(folder, "trace"), "correct horse\n");
      const seen = calls.flatMap((call) => {
        if (syncs(call, draft)) return ["sync draft"];
        if (syncs(call, folder)) return ["sync folder"];
        if (isSync(call) || !call.args.includes(`"${draft}"`) || !call.args.includes(`"${made}"`)) return [];
        return [call.name.startsWith("link") ? "link" : "rename"];
      });
      expect(seen.slice(-expected.length)).toEqual([...expected]);
    },
  );
});

describe.skipIf(skipFor(whyUntraceable))("todo backup succeeds on a file system", () => {
  const inLimited = join(folder, "limited");
  afterEach(() => rm(inLimited, { recursive: true, force: true }));
  test.each<[what: string, options: readonly string[]]>([
    ["without hard links", ["-e", "trace=link,linkat", "-e", "inject=link,linkat:error=EPERM"]],
    [
      "whose folders cannot be synced",
      ["-P", inLimited, "-e", "trace=fsync", "-e", "inject=fsync:error=EINVAL"],
    ],
  ])("%s", async (what, options) => {
    const [source, file, trace] = [
      join(folder, `${what}.db`),
      join(inLimited, "backup"),
      join(folder, "injected"),
    ];
    await mkdir(inLimited);
    const store = await openSqlite(source);
    await store.insert("a");
    await store.close();
    const backup = () =>
      run([
        ...["strace", "-f", "-y", "-o", trace, ...options],
        ...[
          process.execPath,
          "--no-env-file",
          "src/cli/main.ts",
          "backup",
          file,
          "--store",
          `sqlite:${source}`,
        ],
      ]);
    {
      await using command = backup();
      expect([command.stderr(), await command.exited]).toEqual(["", 0]);
    }
    expect(await Bun.file(trace).text()).toContain("(INJECTED)");
    expect(await readdir(inLimited)).toEqual(["backup"]);
    const copy = await openSqlite(file);
    expect(copy.count).toBe(1);
    await copy.close();
    await using again = backup();
    expect(await again.exited).toBe(2);
    expect(again.stderr()).toContain("already exists");
  });

  test("and leaves no file if it can neither link nor rename", async () => {
    const source = join(folder, "unnamed.db");
    await mkdir(inLimited);
    await (await openSqlite(source)).close();
    const calls = "link,linkat,rename,renameat,renameat2";
    await using command = run([
      ...[
        "strace",
        "-f",
        "-o",
        join(folder, "unnamed"),
        "-e",
        `trace=${calls}`,
        "-e",
        `inject=${calls}:error=EPERM`,
      ],
      ...[process.execPath, "--no-env-file", "src/cli/main.ts", "backup", join(inLimited, "backup")],
      ...["--store", `sqlite:${source}`],
    ]);
    expect(await command.exited).toBe(1);
    expect(await readdir(inLimited)).toEqual([]);
  });
});

/** Returns the titles whose 201 was sent before an fsync of their transaction had succeeded. */
function acknowledgedTooSoon({ calls, titles }: Trace, path: string): string[] {
  const writes = calls.filter(({ name, args }) => name === "pwrite64" && args.includes(`<${path}-wal>`));
  const logSyncs = calls.filter((call) => syncs(call, `${path}-wal`));
  const replies = calls.filter(isCreated);
  return titles.filter((title) => {
    const reply = replies.find(({ args }) => args.includes(title));
    const written = writes.findIndex(({ args }) => args.includes(title));
    const commit = writes.find((_, at) => at >= written && isLastOfTransaction(writes[at - 1]));
    if (reply === undefined || written < 0 || commit === undefined)
      throw new Error(`the trace has no complete write of ${title}`);
    return !logSyncs.some(({ began, ended }) => began > commit.ended && ended < reply.began);
  });
}

/**
 * Returns whether a write is the header of a transaction's last frame. Its second number is the size of the database in
 * pages, which is 0 in all other frames (https://www.sqlite.org/fileformat2.html#walformat).
 */
function isLastOfTransaction(write: Call | undefined): boolean {
  const pages = /"[\s\S]{4}([\s\S]{4})[\s\S]{16}", 24, \d+$/.exec(write?.args ?? "")?.[1];
  return pages !== undefined && pages !== "\0\0\0\0";
}
