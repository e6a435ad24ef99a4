import { describe, expect, setSystemTime, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { callTodo, jsonLines } from "../../test/call-todo.ts";
import { ROOT, run } from "../../test/command.ts";
import { parseExposition } from "../../test/exposition.ts";
import { capturingLog } from "../../test/log.ts";
import { serve, stop } from "../../test/server.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { until } from "../../test/until.ts";
import { Metrics } from "../http/observability/metrics.ts";
import { openSqlite } from "../storage/sqlite/store.ts";
import { scheduleBackups } from "./backups.ts";

const root = temporaryFolder();
const DAY = 24 * 3_600_000;

async function makeStore(path: string, ...titles: readonly string[]): Promise<string> {
  const store = await openSqlite(path);
  for (const title of titles) await store.insert(title);
  await store.close();
  return store.id ?? "";
}

async function newStore(backups = mkdtempSync(join(root, "backups-"))) {
  const path = join(mkdtempSync(join(root, "store-")), "todos.db");
  const id = await makeStore(path, "a");
  const { log, lines } = capturingLog();
  const metrics = new Metrics({ version: "1", runtime: "bun" });
  const count = (message: string) => lines.filter((line) => line.message === message).length;
  return {
    path,
    backups,
    nameIn: (year: number) => `todos-${year}0101T000000Z-${id}.db`,
    names: () =>
      readdirSync(backups)
        .filter((name) => name.includes(id))
        .toSorted(),
    schedule: (everyMs: number, keep: number) =>
      scheduleBackups({ path, folder: backups, everyMs, keep }, id, log, metrics),
    finished: (times: number) => until(() => count("backup finished") >= times, `${times} backups are made`),
    lines,
    metric: async (name: string) => parseExposition(await metrics.text()).get(`todo_backup_${name}`),
  };
}

async function titlesIn(file: string): Promise<string[]> {
  const { stdout } = await callTodo(["export", "--store", `sqlite:${file}`]);
  return jsonLines(stdout)
    .slice(1)
    .map(({ title }) => title);
}

describe("scheduled backups", () => {
  test("are made by a server at the start and after each interval, and only the newest are retained", async () => {
    const { path, backups, names, nameIn } = await newStore();
    const part = `${nameIn(2026)}.part`;
    const others = ["mine.db", "todos-20260101T000000Z-other.db", "todos-20260101T000000Z-other.db.part"];
    for (const name of [part, ...others]) writeFileSync(join(backups, name), "");
    const flags = ["--backup-dir", backups, "--backup-every", "1s", "--backup-keep", "2"];
    await using server = serve(["--store", `sqlite:${path}`, ...flags]);
    await until(() => server.stdout().split('"backup finished"').length > 4, "four backups are made");
    await stop(server);
    expect(readdirSync(backups)).toEqual(expect.arrayContaining(others));
    expect(names()).not.toContain(part);
    const made = names().filter((name) => name.endsWith(".db"));
    expect(made.length).toBeWithin(2, 4);
    const newest = join(backups, made.at(-1) ?? "");
    expect(await titlesIn(newest)).toEqual(["a"]);
    expect(statSync(newest).mode & 0o777).toBe(0o600);
  });

  test("are not made again at a restart within the interval, also if another store has backups in the folder", async () => {
    const store = await newStore();
    const other = await newStore(store.backups);
    writeFileSync(join(store.backups, store.nameIn(2026)), "x");
    store.schedule(DAY, 1);
    // It starts later, so a backup of the first store would have begun.
    other.schedule(DAY, 1);
    await other.finished(1);
    expect([store.names(), other.names().length]).toEqual([[store.nameIn(2026)], 1]);
    expect(await store.metric("last_success_timestamp_seconds")).toBeWithin(1, Date.now() / 1000);
    expect(await store.metric("disk_free_bytes")).toBeLessThan((await store.metric("disk_size_bytes")) ?? 0);
  });

  test("that fail because their folder was removed are logged, counted and tried again", async () => {
    const { backups, schedule, finished, lines, metric } = await newStore();
    schedule(1000, 2);
    await finished(1);
    rmSync(backups, { recursive: true });
    await until(() => lines.some(({ message }) => message === "backup failed"), "a backup fails");
    expect(await metric("failures_total")).toBeGreaterThan(0);
    mkdirSync(backups);
    await finished(2);
  });

  test("succeed, and remove other old backups, when an old backup cannot be removed", async () => {
    const { backups, schedule, finished, names, nameIn, lines, metric } = await newStore();
    mkdirSync(join(backups, nameIn(2025)));
    writeFileSync(join(backups, nameIn(2024)), "x");
    schedule(1000, 1);
    await finished(2);
    const file = join(backups, nameIn(2025));
    expect(lines.at(-1)).toMatchObject({ level: "warn", fields: { file } });
    expect(await metric("failures_total")).toBe(0);
    expect(names()).toEqual([nameIn(2025), expect.not.stringContaining(nameIn(2024))]);
  });

  test("are made again when the clock was ahead, and the new backup stays", async () => {
    const { backups, schedule, finished, names, lines, metric } = await newStore();
    setSystemTime(new Date("2099-01-01T00:00:00Z"));
    schedule(1000, 1);
    await finished(1);
    expect(names()).toEqual([expect.stringMatching(/^todos-2099/)]);
    setSystemTime();
    await finished(2);
    expect(await metric("last_success_timestamp_seconds")).toBeWithin(1, Date.now() / 1000);
    expect(names()).toEqual([expect.not.stringMatching(/^todos-2099/)]);
    expect(lines).toContainEqual({
      level: "warn",
      fields: { folder: backups, reason: expect.stringMatching(/^todos-2099\S* is dated in the future/) },
      message: "backup not counted",
    });
  });

  test("are made at the start if the folder has only files that are not backups", async () => {
    const { backups, schedule, finished, nameIn, lines, metric } = await newStore();
    writeFileSync(join(backups, nameIn(2025)), "");
    symlinkSync(join(backups, "missing"), join(backups, nameIn(2024)));
    for (const year of [2023, 2099]) writeFileSync(join(backups, nameIn(year)), "x");
    utimesSync(join(backups, nameIn(2023)), 4e9, 4e9);
    schedule(DAY, 9);
    await finished(1);
    const reasons = lines.flatMap(({ message, fields }) =>
      message === "backup not counted" ? [fields.reason] : [],
    );
    expect(reasons).toEqual([
      `${nameIn(2023)} is dated in the future: check the clock`,
      `${nameIn(2024)}: no such file or folder`,
      `${nameIn(2025)} is empty`,
      `${nameIn(2099)} is dated in the future: check the clock`,
    ]);
    const last = Number(await metric("last_success_timestamp_seconds")) * 1000;
    expect(last).toBeWithin(Date.now() - 600_000, Date.now() + 1);
  });
});

test("the restore drill of the docs restores the newest backup", async () => {
  const docs = readFileSync(join(ROOT, "docs/how-to/backup-and-restore.md"), "utf8");
  const drill = /## Restore drill[\s\S]*?```sh\n([\s\S]*?)```/.exec(docs)?.[1] ?? "";
  expect(drill).toContain("todo restore");
  const folder = mkdtempSync(join(root, "drill-"));
  mkdirSync(join(folder, "backups"));
  for (const [name, titles] of [
    ["todos-20260101T000000Z.db", ["old"]],
    ["todos-20260102T000000Z.db", ["new", "newer"]],
  ] as const) {
    const path = join(folder, name);
    await makeStore(path, ...titles);
    const made = await callTodo(["backup", join(folder, "backups", name), "--store", `sqlite:${path}`]);
    expect(made.code).toBe(0);
  }
  const shell = run(["sh", "-euc", `cd "$0" && PATH="$1:$PATH"\n${drill}`, folder, join(ROOT, "bin")]);
  expect([await shell.exited, shell.stderr()]).toEqual([0, expect.stringContaining("exported 2 to-dos")]);
  expect(shell.stdout().trimEnd().split("\n").at(-1)).toBe('{"todoService":1,"lastId":"2","todos":2}');
  expect(await titlesIn(join(folder, "drill.db"))).toEqual(["new", "newer"]);
});
