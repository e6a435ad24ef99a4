import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { openSqlite } from "../src/storage/sqlite/store.ts";
import { run } from "./command.ts";
import { skipFor } from "./skip.ts";
import { isSync, syncs, traceCommand, whyUntraceable } from "./strace.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();

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
  ])("happens before rename, and fsync of its folder before the end: todo %s", async (_, args, expected) => {
    const calls = await traceCommand(args, join(folder, "trace"), "correct horse\n");
    const seen = calls.flatMap((call) => {
      if (syncs(call, draft)) return ["sync draft"];
      if (syncs(call, folder)) return ["sync folder"];
      if (isSync(call) || !call.args.includes(`"${draft}"`) || !call.args.includes(`"${made}"`)) return [];
      return [call.name.startsWith("link") ? "link" : "rename"];
    });
    expect(seen.slice(-expected.length)).toEqual([...expected]);
  });
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
    const backup = () => backUp(source, file, trace, options);
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
    const options = ["-e", `trace=${calls}`, "-e", `inject=${calls}:error=EPERM`];
    await using command = backUp(source, join(inLimited, "backup"), join(folder, "unnamed"), options);
    expect(await command.exited).toBe(1);
    expect(await readdir(inLimited)).toEqual([]);
  });
});

const backUp = (source: string, file: string, trace: string, options: readonly string[]) =>
  run([
    ...["strace", "-f", "-y", "-o", trace, ...options, process.execPath, "--no-env-file", "src/cli/main.ts"],
    ...["backup", file, "--store", `sqlite:${source}`],
  ]);
