import { afterAll, describe, expect, setSystemTime, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, run, runTodo } from "../../test/command.ts";
import { parseExposition } from "../../test/exposition.ts";
import { capturingLog } from "../../test/log.ts";
import { createTodo } from "../../test/served-todos.ts";
import { until } from "../../test/until.ts";
import { Metrics } from "../http/observability/metrics.ts";
import { openSqlite } from "../storage/sqlite/store.ts";
import { scheduleBackups } from "./backups.ts";

const root = mkdtempSync(join(tmpdir(), "todo-scheduled-"));
afterAll(() => rmSync(root, { recursive: true }));
let folders = 0;

/** Makes a folder with a folder for backups in it. */
function newFolder() {
  const folder = join(root, `${++folders}`);
  const backups = join(folder, "backups");
  mkdirSync(backups, { recursive: true });
  return { folder, backups, store: `sqlite:${join(folder, "todos.db")}` };
}

const serve = (store: string, ...args: readonly string[]): Command =>
  runTodo(["serve", "--port", "0", "--store", store, ...args]);

/** Creates a store and returns its id. */
async function createStore(url: string): Promise<string | undefined> {
  const store = await openSqlite(url.replace("sqlite:", ""));
  await store.close();
  return store.id;
}

const finished = (server: Command): number => server.stdout().split('"backup finished"').length - 1;

/** Returns the titles of the to-dos in a backup. */
async function titlesIn(file: string): Promise<string[]> {
  await using command = runTodo(["export", "--store", `sqlite:${file}`]);
  expect(await command.exited).toBe(0);
  const [, ...lines] = command.stdout().trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line).title);
}

describe("scheduled backups", () => {
  test("are made at the start and after each interval, and only the newest are retained", async () => {
    const { backups, store } = newFolder();
    const storeId = await createStore(store);
    const part = `todos-20260101T000000Z-${storeId}.db.part`;
    const others = ["mine.db", "todos-20260101T000000Z-other.db", "todos-20260101T000000Z-other.db.part"];
    for (const name of [part, ...others]) writeFileSync(join(backups, name), "");
    await using server = serve(store, "--backup-dir", backups, "--backup-every", "1s", "--backup-keep", "2");
    await createTodo(await server.url, "a");
    await until(() => finished(server) >= 4, "four backups are made");
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    const names = readdirSync(backups).filter((name) => !name.includes(".part"));
    expect(names.filter((name) => name.endsWith(`Z-${storeId}.db`)).length).toBeWithin(2, 4);
    expect(readdirSync(backups)).toEqual(expect.arrayContaining(others));
    expect(readdirSync(backups)).not.toContain(part);
    const newest = join(
      backups,
      names
        .filter((name) => name.endsWith(`Z-${storeId}.db`))
        .toSorted()
        .at(-1) ?? "",
    );
    expect(await titlesIn(newest)).toEqual(["a"]);
    expect((statSync(newest).mode & 0o777).toString(8)).toBe("600");
  });

  test("are not made again at a restart within the interval", async () => {
    const { backups, store } = newFolder();
    for (const expected of [1, 0]) {
      await using server = serve(store, "--backup-dir", backups);
      await server.url;
      if (expected === 1) await until(() => finished(server) === 1, "the backup is made");
      else await Bun.sleep(500);
      expect(finished(server)).toBe(expected);
    }
    expect(readdirSync(backups)).toHaveLength(1);
  });

  test("that fail because their folder was removed are logged, and the server continues", async () => {
    const { backups, store } = newFolder();
    await using server = serve(store, "--backup-dir", backups, "--backup-every", "1s", "--metrics-port", "0");
    await until(() => finished(server) >= 1, "the first backup is made");
    rmSync(backups, { recursive: true });
    await until(() => server.stdout().includes('"backup failed"'), "a backup fails");
    const url = /"metricsUrl":"([^"]+)"/.exec(server.stdout())?.[1] ?? "";
    expect(await (await fetch(url)).text()).toMatch(/^todo_backup_failures_total [1-9]/m);
    await createTodo(await server.url, "b");
    mkdirSync(backups);
    const before = finished(server);
    await until(() => finished(server) > before, "backups succeed again");
  });

  test("succeed, and remove other old backups, when an old backup cannot be removed", async () => {
    const { backups, store } = newFolder();
    const stuck = join(backups, `todos-20260101T000000Z-${await createStore(store)}.db`);
    mkdirSync(stuck);
    const args = ["--backup-dir", backups, "--backup-every", "1s", "--backup-keep", "1"];
    await using server = serve(store, ...args, "--metrics-port", "0");
    await until(() => finished(server) >= 4, "four backups are made");
    const url = /"metricsUrl":"([^"]+)"/.exec(server.stdout())?.[1] ?? "";
    expect(await (await fetch(url)).text()).toMatch(/^todo_backup_failures_total 0$/m);
    server.kill("SIGTERM");
    expect(await server.exited).toBe(0);
    const warning = server
      .stdout()
      .split("\n")
      .find((line) => line.includes("old backup not removed"));
    expect(JSON.parse(warning ?? "{}")).toMatchObject({ level: "warn", file: stuck });
    const names = readdirSync(backups, { withFileTypes: true }).filter((entry) => entry.isFile());
    expect(names.filter(({ name }) => name.endsWith(".db")).length).toBeWithin(1, 3);
  });

  test("are made again when the clock was ahead, and the new backup stays", async () => {
    const { backups, store } = newFolder();
    const storeId = await createStore(store);
    const { log, lines } = capturingLog();
    const madeBefore = (count: number) => () =>
      lines.filter(({ message }) => message === "backup finished").length >= count;
    setSystemTime(new Date("2099-01-01T00:00:00Z"));
    try {
      const path = store.replace("sqlite:", "");
      const schedule = { path, folder: backups, everyMs: 1000, keep: 1 };
      const metrics = new Metrics({ version: "1", runtime: "bun" });
      scheduleBackups(schedule, storeId ?? "", log, metrics);
      await until(madeBefore(1), "a backup is made while the clock is ahead");
      expect(readdirSync(backups)).toEqual([expect.stringMatching(/^todos-2099/)]);
      setSystemTime();
      await until(madeBefore(2), "a backup is made after the clock was corrected");
      const samples = parseExposition(await metrics.text());
      const last = samples.get("todo_backup_last_success_timestamp_seconds");
      expect(last).toBeWithin(1, Date.now() / 1000);
    } finally {
      setSystemTime();
    }
    const names = readdirSync(backups).filter((name) => name.endsWith(".db"));
    expect(names).not.toBeEmpty();
    expect(names.filter((name) => name.startsWith("todos-2099"))).toEqual([]);
    expect(lines).toContainEqual({
      level: "warn",
      fields: { folder: backups, reason: expect.stringMatching(/^todos-2099\S* is dated in the future/) },
      message: "backup not counted",
    });
  });

  test("are made at the start if the folder has only files that are not backups", async () => {
    const { backups, store } = newFolder();
    const storeId = await createStore(store);
    const [empty, dangling, future] = ["2025", "2024", "2099"].map(
      (year) => `todos-${year}0101T000000Z-${storeId}.db`,
    );
    writeFileSync(join(backups, empty ?? ""), "");
    symlinkSync(join(backups, "missing"), join(backups, dangling ?? ""));
    writeFileSync(join(backups, future ?? ""), "x");
    await using server = serve(store, "--backup-dir", backups, "--metrics-port", "0");
    await until(() => finished(server) === 1, "the backup is made");
    const warnings = server
      .stdout()
      .split("\n")
      .filter((line) => line.includes("backup not counted"));
    expect(warnings.map((line) => JSON.parse(line).reason).toSorted()).toEqual([
      `${dangling}: no such file or folder`,
      `${empty} is empty`,
      `${future} is dated in the future: check the clock`,
    ]);
    const url = /"metricsUrl":"([^"]+)"/.exec(server.stdout())?.[1] ?? "";
    const metrics = await (await fetch(url)).text();
    const last = Number(/^todo_backup_last_success_timestamp_seconds (\S+)$/m.exec(metrics)?.[1]);
    expect(last * 1000).toBeWithin(Date.now() - 600_000, Date.now() + 1);
  });

  test("need a SQLite store and a folder", async () => {
    const { folder, backups, store } = newFolder();
    const notes = join(folder, "notes.txt");
    writeFileSync(notes, "");
    for (const [args, reason] of [
      [["--store", "memory:", "--backup-dir", backups], "--backup-dir needs a sqlite: store"],
      [["--store", store, "--backup-dir", notes], "it is not a folder"],
    ] as const) {
      await using command = runTodo(["serve", "--port", "0", ...args]);
      expect([await command.exited, command.stderr()]).toEqual([2, expect.stringContaining(reason)]);
    }
  });
});

test("the restore drill of the docs restores the newest backup", async () => {
  const docs = await readFile(
    fileURLToPath(new URL("../../docs/how-to/backup-and-restore.md", import.meta.url)),
    "utf8",
  );
  const drill = /## Restore drill[\s\S]*?```sh\n([\s\S]*?)```/.exec(docs)?.[1] ?? "";
  expect(drill).toContain("todo restore");
  const { folder, backups } = newFolder();
  for (const [name, titles] of [
    ["todos-20260101T000000Z.db", ["old"]],
    ["todos-20260102T000000Z.db", ["new", "newer"]],
  ] as const) {
    const path = join(folder, name);
    const store = await openSqlite(path);
    for (const title of titles) await store.insert(title);
    await store.close();
    await using command = runTodo(["backup", join(backups, name), "--store", `sqlite:${path}`]);
    expect(await command.exited).toBe(0);
  }
  const bin = fileURLToPath(new URL("../../bin", import.meta.url));
  const shell = run(["sh", "-euc", `cd "$0" && PATH="$1:$PATH"\n${drill}`, folder, bin]);
  expect([await shell.exited, shell.stderr()]).toEqual([0, expect.stringContaining("exported 2 to-dos")]);
  expect(shell.stdout().trimEnd().split("\n").at(-1)).toBe('{"todoService":1,"lastId":"2","todos":2}');
  expect(await titlesIn(join(folder, "drill.db"))).toEqual(["new", "newer"]);
});
