import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { crc32 } from "node:zlib";
import { callTodo, complaintOf } from "../../../test/call-todo.ts";
import { type Command, type Outcome, run } from "../../../test/command.ts";
import { mint, whoami } from "../../../test/credentials.ts";
import { serve } from "../../../test/server.ts";
import { startPrivate } from "../../../test/service.ts";
import { storePathsIn, temporaryFolder } from "../../../test/temporary.ts";
import type { MintedKey } from "../../credential/key.ts";
import { mintToken } from "../../credential/token.ts";
import { renderQrCode } from "../../sign-in-link.ts";
import { openSqliteKeys } from "../../storage/sqlite/keys.ts";
import { openSqlite } from "../../storage/sqlite/store.ts";

const folder = temporaryFolder();
const newPath = storePathsIn(folder);
function newStore() {
  const path = newPath();
  return { path, store: ["--store", `sqlite:${path}`] };
}

const HOUR = 60 * 60 * 1000;
const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;
const ADDRESS = "https://todo.example.com";

const keys = (...args: readonly string[]): Promise<Outcome> => callTodo(["keys", ...args]);
const refusal = (...args: readonly string[]): Promise<string> => complaintOf(keys(...args));

async function tokenOf(...args: readonly string[]) {
  const { code, stdout, stderr } = await keys(...args);
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^todo_\w{49}\n$/)]);
  const token = stdout.trimEnd();
  expect(stderr).not.toContain(token.slice(5, 20));
  return { token, stderr, id: /^Key (\w{8}) of /m.exec(stderr)?.[1] ?? "" };
}

const whoamiAll = (url: string, ...tokens: readonly string[]) =>
  Promise.all(tokens.map((token) => whoami(url, token)));

async function addKey(path: string, name: string, lifetime?: number, now?: number): Promise<MintedKey> {
  const { keys: stored, close } = openSqliteKeys(path, { createIfMissing: true });
  const minted = await mint(stored, name, { lifetime, ...(now !== undefined && { now }) });
  await close();
  return minted;
}

const { path: PATH_WITH_CI, store: STORE_WITH_CI } = newStore();
await addKey(PATH_WITH_CI, "ci");

describe("todo keys while a server runs", () => {
  const { path, store } = newStore();
  let server: Command;
  let url: string;
  beforeAll(async () => {
    const user = { TODO_ADMIN_USER: "root", TODO_ADMIN_PASSWORD: "s3cret" };
    server = serve(["--access-log", ...store], user);
    url = await server.url;
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("create creates a key that is accepted immediately", async () => {
    const { token, id, stderr } = await tokenOf("create", "new", ...store);
    expect(await whoami(url, token)).toBe("new");
    expect(stderr).toBe(`Key ${id} of new does not expire. Its token is shown only once.\n`);
    const expiring = await tokenOf("create", "Zoë \u202e", "--expires", "90d", ...store);
    expect(await whoami(url, expiring.token)).toBe("Zoë \u202e");
    expect(expiring.stderr).toMatch(
      new RegExp(
        `^Key ${expiring.id} of Zoë <U\\+202E> expires ${TIME}\\. Its token is shown only once\\.\n$`,
      ),
    );
  });

  test("rotate keeps the scope, and both tokens valid, but with --overlap 0 only the new token", async () => {
    const first = await tokenOf("create", "ci", "--scope", "read", ...store);
    const second = await tokenOf("rotate", "ci", ...store);
    expect(await whoamiAll(url, first.token, second.token)).toEqual(["ci", "ci"]);
    expect(second.stderr).toMatch(
      new RegExp(
        `^Key ${second.id} of ci does not expire\\. Its token is shown only once\\. Older keys of ci are valid until ${TIME} at the latest\\.\n$`,
      ),
    );
    const third = await tokenOf("rotate", second.id, "--overlap", "0", ...store);
    expect(await whoamiAll(url, first.token, second.token, third.token)).toEqual([401, 401, "ci"]);
    expect(third.stderr).toEndWith(" Older keys of ci are no longer valid.\n");
    const { stdout } = await keys("list", ...store);
    expect(stdout.match(/^ci +\w{8} +\w+/gm)?.map((row) => row.split(/ +/))).toEqual(
      [first, second, third].map(({ id }) => ["ci", id, "read"]),
    );
  });

  test("revoke revokes all keys of a name, or only the key of an id", async () => {
    const { key, token: first } = await addKey(path, "laptop");
    const second = await tokenOf("rotate", "laptop", ...store);
    const [backup, other] = [await addKey(path, "backup"), await addKey(path, "other")];
    expect(await keys("revoke", other.key.id, ...store)).toEqual({
      code: 0,
      stdout: `revoked ${other.key.id} of other\n`,
      stderr: "",
    });
    const tokens = [first, second.token, backup.token, other.token];
    expect(await whoamiAll(url, ...tokens)).toEqual(["laptop", "laptop", "backup", 401]);
    const { code, stdout } = await keys("revoke", "laptop", ...store);
    expect([code, stdout]).toEqual([0, `revoked ${key.id} of laptop\nrevoked ${second.id} of laptop\n`]);
    expect(await whoamiAll(url, ...tokens)).toEqual([401, 401, "backup", 401]);
  });
});

describe("todo keys", () => {
  test("exits with 1 and the reason while the database cannot be reached", async () => {
    const url = "postgres://todo:s3cret@127.0.0.1:1/todos";
    expect(await complaintOf(keys("list", "--store", url), 1)).toBe(
      "--store: 127.0.0.1:1: Failed to connect; check that PostgreSQL is running, and the host and port of the URL",
    );
  });

  test("create creates a new store, and says so", async () => {
    const { path, store } = newStore();
    const created = `todo: created sqlite:${path}\n`;
    expect((await keys("create", "one", ...store)).stderr).toStartWith(created);
    expect((await keys("create", "two", ...store)).stderr).not.toContain("created");
  });

  test("create through npm prints only the token on standard output", async () => {
    const { path } = newStore();
    const line = `TOKEN=$(npm run -s todo -- keys create ci --store "sqlite:${path}" 2>/dev/null) && printf '[%s]' "$TOKEN"`;
    await using shell = run(["sh", "-c", line]);
    expect([await shell.exited, shell.stdout()]).toEqual([0, expect.stringMatching(/^\[todo_\w{49}\]$/)]);
  });

  test("list prints a table for names of any width, and escapes control characters", async () => {
    const { path, store } = newStore();
    const ids: string[] = [];
    for (const [name, ...more] of [["日本語", 1, Date.now() - HOUR], ["\u202eb"], ["😀 continuous"]] as const)
      ids.push((await addKey(path, name, ...more)).key.id);
    const opened = openSqliteKeys(path, { createIfMissing: false });
    opened.keys.recordUse(ids[1] ?? "", Date.now());
    await opened.close();
    const { code, stdout, stderr } = await keys("list", ...store);
    expect([code, stderr]).toEqual([0, ""]);
    const masked = stdout.replaceAll(new RegExp(TIME, "g"), "2026-01-02T03:04:05Z");
    const [now, expired] = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z (expired)"];
    expect(masked.split("\n")).toEqual([
      "NAME           ID        SCOPE  CREATED               EXPIRES                         LAST USED             DEVICE OF",
      `日本語         ${ids[0]}  write  ${now}  ${expired}  never`,
      `<U+202E>b      ${ids[1]}  write  ${now}  never                           ${now}`,
      `😀 continuous  ${ids[2]}  write  ${now}  never                           never`,
      "",
    ]);
  });

  test("create --link rejects what is not the address of a service, before it makes the key", async () => {
    const { path, store } = newStore();
    expect(await refusal("create", "phone", "--link", "127.0.0.1:3000", ...store)).toContain(
      '--link "127.0.0.1:3000"',
    );
    expect(existsSync(path)).toBe(false);
  });

  const codeIn = (address: string, stdout: string): string => {
    expect(stdout).toMatch(/^[^\n]+#sign-in=\w{22}\n$/);
    expect(stdout).toStartWith(`${address}/#`);
    return stdout.trimEnd().split("=")[1] ?? "";
  };

  test("create --link prints a link instead of the token, and list names the browser that it signs in", async () => {
    const { path, store } = newStore();
    const laptop = ["keys", "create", "laptop", "--link", ...store];
    codeIn(ADDRESS, (await callTodo(laptop, { TODO_URL: `${ADDRESS}/` })).stdout);
    const opened = await openSqlite(path);
    await using service = startPrivate(opened);
    const { url } = service;
    const { code, stdout, stderr } = await keys("create", "tablet", "--link", url, ...store);
    expect([code, stderr]).toEqual([
      0,
      `todo: warning: only this machine can open a link to ${url}: run todo keys link tablet ADDRESS for a link that other devices can open\n${renderQrCode(stdout.trimEnd())}This link signs in one browser as tablet within ten minutes:\n`,
    ]);
    const headers = { "User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/144.0" };
    const signedIn = await service.sendJson(
      "POST",
      "/api/session",
      { code: codeIn(url, stdout) },
      { headers },
    );
    expect(signedIn.status).toBe(201);
    const rows = (await keys("list", ...store)).stdout.trimEnd().split("\n");
    expect(rows).toHaveLength(4);
    expect(rows[3]).toMatch(/^tablet · Firefox on Linux {2}\w{8} {2}write .* tablet$/);
    const id = / (\w{8}) {2}write /.exec(rows[3] ?? "")?.[1] ?? "";
    expect((await keys("rename", id, "Desk", ...store)).stdout).toBe(`renamed ${id} to tablet · Desk\n`);
    expect(await refusal("link", id, url, ...store)).toContain("is the key of a browser");
    await opened.close();
  });

  test("link prints another link for a key whose token stays valid, and rename renames the newest key", async () => {
    const { path, store } = newStore();
    const first = await tokenOf("create", "ben", ...store);
    const exists = await refusal("create", "ben", "--link", ADDRESS, ...store);
    expect(exists).toContain("run todo keys link for another link");
    const { stdout, stderr } = await keys("link", "ben", ADDRESS, ...store);
    expect(stderr).not.toContain("warning");
    const overHttp = (await keys("link", "ben", "http://todo.example.com", ...store)).stderr;
    expect(overHttp).toStartWith("todo: warning: others need HTTPS to open a link to http:");
    expect(stderr).toEndWith("This link signs in one browser as ben within ten minutes:\n");
    const opened = await openSqlite(path);
    await using service = startPrivate(opened);
    const signedIn = await service.sendJson("POST", "/api/session", { code: codeIn(ADDRESS, stdout) });
    expect(signedIn.status).toBe(201);
    const second = await tokenOf("rotate", "ben", ...store);
    const renamed = await keys("rename", "ben", "benjamin", ...store);
    expect(renamed.stdout).toBe(`renamed ${second.id} to benjamin\n`);
    expect(await whoamiAll(service.url, first.token, second.token)).toEqual(["ben", "benjamin"]);
    await tokenOf("create", "cleo", ...store);
    expect(await refusal("rename", "cleo", "benjamin", ...store)).toBe(
      "another key has this name: choose a different one",
    );
    expect(await refusal("rename", "cleo", " ", ...store)).toBe("the name: must not be empty");
    expect(await refusal("link", "cleo", "todo.example.com", ...store)).toStartWith(
      'the URL "todo.example.com": ',
    );
    await opened.close();
  });

  test("create explains how to revoke the key if the token cannot be written, after which list finds no key", async () => {
    const { path, store } = newStore();
    const line = `"$0" --no-env-file src/cli/main.ts keys create ci --store "sqlite:${path}" | true; exit "\${PIPESTATUS[0]}"`;
    await using command = run(["bash", "-c", line, process.execPath]);
    expect(await command.exited).toBe(1);
    const [, id = ""] =
      /the token is lost; revoke the key with todo keys revoke (\w{8})\n$/.exec(command.stderr()) ?? [];
    expect(command.stderr()).not.toMatch(/todo_| at /);
    expect((await keys("revoke", id, ...store)).stdout).toBe(`revoked ${id} of ci\n`);
    expect(await keys("list", ...store)).toEqual({ code: 0, stdout: "", stderr: "No API keys.\n" });
  });

  test("revoke of a name also revokes a key that a concurrent rotation adds", async () => {
    const { path, store } = newStore();
    const { id } = (await addKey(path, "ci")).key;
    const database = new Database(path);
    database.run(
      `CREATE TRIGGER meanwhile AFTER DELETE ON keys WHEN old.id = '${id}'
       BEGIN INSERT INTO keys (id, name, token_hash, created_at, scope, crc)
         VALUES ('11112222', 'ci', x'00', 1, 'read', ${crc32("11112222 ci 00 1    read ")}); END`,
    );
    database.close();
    const { code, stdout } = await keys("revoke", "ci", ...store);
    expect([code, stdout]).toEqual([0, `revoked ${id} of ci\nrevoked 11112222 of ci\n`]);
  });

  test("an id takes precedence over a name", async () => {
    const { path, store } = newStore();
    const { id } = (await addKey(path, "ci")).key;
    const { key: namesake } = await addKey(path, id);
    expect((await keys("revoke", id, ...store)).stdout).toBe(`revoked ${id} of ci\n`);
    expect((await keys("revoke", id, ...store)).stdout).toBe(`revoked ${namesake.id} of ${id}\n`);
  });

  test.each<[...args: string[]]>([
    ["create", "ci"],
    ["revoke", "ci", "--store", "memory:"],
  ])("%s with a memory store names the other ways to manage keys", async (...args) => {
    const line = await refusal(...args);
    for (const way of ["TODO_CLIENTS_FILE", "/admin/keys", "sqlite:PATH or postgres://…"])
      expect(line).toContain(way);
  });

  test.each<[...args: string[]]>([["list"], ["rotate", "ci"], ["revoke", "ci"]])(
    "%s does not create a store",
    async (...args) => {
      const { path, store } = newStore();
      expect(await refusal(...args, ...store)).toBe(
        `--store: ${path} does not exist: check the path of the store`,
      );
      expect(existsSync(path)).toBe(false);
    },
  );

  test.each<[what: string, args: readonly string[], line: string]>([
    [
      "a name with several errors",
      ["create", "\t".repeat(101)],
      "the name: must not be empty, must be at most 100 characters, must have no control characters",
    ],
    ["an invalid expiry", ["create", "a", "--expires", "1y"], '--expires "1y": must be a duration'],
    [
      "a used name",
      ["create", "ci"],
      "already exists: run todo keys rotate for a new token, or choose another",
    ],
  ])("rejects %s with a one-line error", async (_what, args, line) => {
    const said = await refusal(...args, ...STORE_WITH_CI);
    expect(said).toContain(line);
    expect(said).not.toContain("todo_");
    const { keys: stored, close } = openSqliteKeys(PATH_WITH_CI, { createIfMissing: false });
    expect((await stored.list()).map(({ name }) => name)).toEqual(["ci"]);
    await close();
  });

  test.each<[command: string, ...args: string[]]>([
    ["rotate", "cj"],
    ["revoke", mintToken()],
    ["link", "cj"],
    ["rename", "cj", "ck"],
  ])("%s exits with 3 for an absent key", async (...args) => {
    expect(await complaintOf(keys(...args, ...STORE_WITH_CI), 3)).toBe(
      "no key has this name or id: run todo keys list to see all keys",
    );
  });

  test("an error of the store is printed as one line, with exit code 1", async () => {
    const { path, store } = newStore();
    await addKey(path, "ci");
    using database = new Database(path);
    for (const event of ["INSERT", "DELETE"])
      database.run(
        `CREATE TRIGGER no_${event} BEFORE ${event} ON keys BEGIN SELECT RAISE(FAIL, 'no room'); END`,
      );
    for (const line of ["create a", "rotate ci", "revoke ci"])
      expect(await complaintOf(keys(...line.split(" "), ...store), 1)).toBe("no room");
    expect((await keys("list", ...store)).stdout).toMatch(/^ci .* never +never$/m);
  });
});
