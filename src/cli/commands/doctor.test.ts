import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { once } from "node:events";
import { existsSync, mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { basename, join } from "node:path";
import { callTodo, jsonLines } from "../../../test/call-todo.ts";
import { certificateIn, makeCertificate } from "../../../test/certificate.ts";
import { freePort } from "../../../test/free-port.ts";
import { openDatabases, whyNoDatabase } from "../../../test/postgres.ts";
import { createTodo } from "../../../test/served-todos.ts";
import { serveFile } from "../../../test/server.ts";
import { startPrivate, startService } from "../../../test/service.ts";
import { skipFor } from "../../../test/skip.ts";
import { filesIn, temporaryFolder } from "../../../test/temporary.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const folder = temporaryFolder();
const file = filesIn(folder);

/** Runs `todo doctor`. Returns the exit code and the lines by check, each with its status and text. */
async function doctor(args: readonly string[], variables: Readonly<Record<string, string>> = {}) {
  const { code, stdout, stderr } = await callTodo(["doctor", ...args], variables);
  const lines: Record<string, string[]> = {};
  for (const line of stdout.trimEnd().split("\n")) {
    const [, status, name = "", text] = /^(\w+) +(\w+) +(.*)$/.exec(line) ?? [];
    lines[name] = [...(lines[name] ?? []), `${status}: ${text}`];
  }
  return { code, lines, stderr };
}

async function newStore() {
  const path = file();
  const store = await openSqlite(path);
  await store.insert("a");
  await store.close();
  return { path, id: store.id, args: ["--store", `sqlite:${path}`, ...free] };
}

const CLIENTS = `alice:${"0".repeat(64)}\n`;
const PAIR = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret" };
const free = ["--port", "0"];

describe("todo doctor", () => {
  test("prints one line per check and exits with 0 if nothing fails", async () => {
    const { path, args } = await newStore();
    const { code, lines, stderr } = await doctor([...args, "--clients-file", file(CLIENTS)], PAIR);
    expect([code, stderr]).toEqual([0, ""]);
    expect(lines).toEqual({
      store: [`ok: ${path} can be read and written`],
      credentials: ["ok: clients are configured; users are configured"],
      certificate: ["ok: not configured"],
      port: ["ok: the server uses any free port on 127.0.0.1"],
      backups: ["ok: not scheduled by the server"],
    });
  });

  const ONLY_KEYS = "warning: only API keys of the store are accepted; without keys,";
  const postgres = { TODO_STORE: "postgres://todo:s3cret@127.0.0.1:1/todos" };
  const elsewhere = ["--host", "192.0.2.1", "--port", "3000"];
  test.each<[what: string, args: string[], variables: Record<string, string>, code: number, line: string]>([
    ["warns about a store in memory", [], {}, 0, "store: warning: memory: loses all to-dos when"],
    ["warns about demo credentials", [], {}, 0, `credentials: ${ONLY_KEYS} each start generates demo`],
    ["warns about private mode", ["--private"], {}, 0, `credentials: ${ONLY_KEYS} the server does not start`],
    ["fails for a database that is away", [], postgres, 1, "store: failed: 127.0.0.1:1: Failed to connect;"],
    [
      "fails for wrong clients",
      ["--clients-file", file("bob\n")],
      {},
      1,
      "credentials: failed: --clients-file",
    ],
    [
      "fails for another machine",
      elsewhere,
      {},
      1,
      "port: failed: 192.0.2.1 is not an address of this machine",
    ],
  ])("%s", async (_what, args, variables, expected, line) => {
    const { code, lines } = await doctor([...free, ...args], variables);
    const [check = "", ...text] = line.split(": ");
    expect([code, lines[check]]).toEqual([expected, [expect.stringContaining(text.join(": "))]]);
    expect(JSON.stringify(lines)).not.toContain("s3cret");
  });

  test("does not create a store that is missing", async () => {
    const path = file();
    const { code, lines } = await doctor(["--store", `sqlite:${path}`, ...free]);
    expect([code, lines.store]).toEqual([0, [`ok: ${path} does not exist yet, and can be created`]]);
    expect(existsSync(path)).toBe(false);
  });

  test("fails for a store that the server refuses, with its reason", async () => {
    const [missing, other] = [await newStore(), await newStore()];
    rmSync(missing.path);
    using database = new Database(other.path);
    database.run(`UPDATE todos SET json = replace(json, '"a"', '"b"')`);
    for (const [path, reason] of [
      [join(folder, "absent", "todos.db"), "check that its folder exists"],
      [file("not a database, ".repeat(1000)), "file is not a database"],
      [missing.path, `it is missing or empty, but there is ${missing.path}-mark: put the right files back`],
      [
        other.path,
        "it is damaged (the to-do 1 is damaged; todo check has details): put the right files back",
      ],
    ] as const) {
      const { code, lines } = await doctor(["--store", `sqlite:${path}`, ...free]);
      expect([code, lines.store]).toEqual([1, [expect.stringContaining(`failed: ${path}: ${reason}`)]]);
    }
  });

  test("--json prints each check as a line", async () => {
    const { path, args } = await newStore();
    const { code, stdout } = await callTodo(["doctor", "--json", ...args]);
    expect(code).toBe(0);
    const check = { name: "store", status: "ok", text: `${path} can be read and written` };
    expect(jsonLines(stdout)).toContainEqual(check);
  });

  test.skipIf(skipFor(whyNoDatabase))("checks the rights of the role in a database", async () => {
    await using databases = await openDatabases();
    const url = new URL(await databases.newDatabase());
    const { code, lines } = await doctor(free, { TODO_STORE: url.href });
    const line = "ok: the database is reachable and accepts writes, and the role has the necessary rights";
    expect([code, lines.store]).toEqual([0, [line]]);
    url.username = `of_${url.pathname.slice(1)}`;
    await databases.query(`CREATE ROLE ${url.username} LOGIN PASSWORD '${url.password}'`);
    expect((await doctor(free, { TODO_STORE: url.href })).lines.store).toEqual([
      expect.stringMatching(
        /^failed: the role \w+ may not use the schema todo_service: as \w+, run "todo migrate"/,
      ),
    ]);
  });

  const DAY = 86_400_000;
  const EXPIRED = { notBefore: Date.now() - 2 * DAY, notAfter: Date.now() - DAY };
  test.each([
    ["fails for an expired certificate", EXPIRED, 1, /^failed: .* has expired/],
    [
      "warns about a certificate that expires soon",
      { notAfter: Date.now() + 3 * DAY },
      0,
      /^warning: .*renew/,
    ],
    [
      "shows when a certificate expires",
      { notAfter: Date.UTC(2041, 0, 1) },
      0,
      /^ok: valid until 2041-01-01T/,
    ],
  ])("%s", async (_what, times, expected, line) => {
    const { options } = certificateIn(folder, makeCertificate(times));
    const { code, lines } = await doctor([...options, ...free]);
    expect([code, lines.certificate]).toEqual([expected, [expect.stringMatching(line)]]);
  });

  test("distinguishes a free port, that of another program, and that of a running server, also in private mode", async () => {
    const seen = async (port: number, ...args: readonly string[]) => {
      const { code, lines } = await doctor(["--port", String(port), ...args]);
      return [code, ...(lines.port ?? [])];
    };
    const port = await freePort();
    expect(await seen(port)).toEqual([0, `ok: ${port} on 127.0.0.1 is free`]);
    const other = createServer((socket) => socket.destroy()).listen(port, "127.0.0.1");
    await once(other, "listening");
    expect(await seen(port)).toEqual([
      1,
      `failed: port ${port} on 127.0.0.1 is in use: stop the other program, or choose another port with --port`,
    ]);
    other.close();
    await using open = startService();
    await using closed = startPrivate(openMemory());
    for (const service of [open, closed])
      expect(await seen(service.port)).toEqual([
        0,
        `ok: ${service.port} on 127.0.0.1 is used by a running todo server`,
      ]);
  });

  test("checks the folder of the backups and the age of the newest backup", async () => {
    const { id, args: store } = await newStore();
    const backups = file();
    const outcome = async (...args: readonly string[]) => {
      const { code, lines } = await doctor([...store, "--backup-dir", backups, ...args]);
      return [code, ...(lines.backups ?? [])];
    };
    expect(await outcome()).toEqual([1, `failed: --backup-dir "${backups}": no such file or folder`]);
    mkdirSync(backups);
    writeFileSync(join(backups, "todos-20260101T000000Z-other.db"), "another store");
    expect(await outcome()).toEqual([0, `ok: ${backups} can be written, and has no backup yet`]);
    const backup = join(backups, `todos-20260101T000000Z-${id}.db`);
    writeFileSync(backup, "");
    expect(await outcome()).toEqual([
      0,
      `warning: ${backups} can be written, and has no backup yet: ${basename(backup)} is empty`,
    ]);
    writeFileSync(backup, "x");
    const hourAgo = new Date(Date.now() - 3_600_000);
    utimesSync(backup, hourAgo, hourAgo);
    const text = `the newest backup in ${backups} is of ${hourAgo.toISOString()}`;
    expect(await outcome()).toEqual([0, `ok: ${text}`]);
    const warning = `warning: ${text}: it is too old; the log of the server has the reason`;
    expect(await outcome("--backup-every", "10m")).toEqual([0, warning]);
  });

  test("fails for a store that another process uses", async () => {
    const { path, args } = await newStore();
    const store = await openSqlite(path);
    const { code, lines } = await doctor(args);
    await store.close();
    const line = `failed: ${path} is in use by another process: stop it, or name another store`;
    expect([code, lines.store]).toEqual([1, [line]]);
  });

  test("passes while a server runs, and changes nothing in its store", async () => {
    const path = file();
    await using server = serveFile(path);
    const url = await server.url;
    const { code, lines } = await doctor(["--store", `sqlite:${path}`, "--port", new URL(url).port]);
    const line = `ok: ${path} can be read and written; a running server uses it`;
    expect([code, lines.store]).toEqual([0, [line]]);
    expect((await createTodo(url, "x")).id).toBe(1);
  });
});
