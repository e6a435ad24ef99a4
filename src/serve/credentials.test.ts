import { describe, expect, jest, test } from "bun:test";
import { renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "../../test/command.ts";
import { as, basic, mint } from "../../test/credentials.ts";
import { capturingLog } from "../../test/log.ts";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import { FOREIGN_THENABLES } from "../../test/thenables.ts";
import { until } from "../../test/until.ts";
import { type Flags, readConfig } from "../config/config.ts";
import type { Environment } from "../config/setting-values.ts";
import type { Poll } from "../config/text-file.ts";
import { UsageError } from "../config/usage-error.ts";
import { hashToken } from "../credential/token.ts";
import { NOOP_LOG } from "../http/observability/log.ts";
import { openMemory } from "../storage/memory/store.ts";
import { openCredentials } from "./credentials.ts";

const folder = temporaryFolder();
const file = filesIn(folder);

const entryOf = (name: string, token: string): string => `${name}:${hashToken(token).toString("hex")}\n`;
const CLIENT = entryOf("alice", "token");
/** Made by Apache's htpasswd. The password is "secret". */
const USER = "bob:$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK\n";
const OTHER = { clientsFile: `alice:${"0".repeat(64)}`, usersFile: USER.replace("bob", "al").trim() };
const EMPTY = "credentials file is empty: its entries are revoked if it is still empty at the next check";
const READ = "credentials read again";
const NOT_READ = "credentials not read: the previous ones stay in use";

/** Opens credentials with files that are never read again. */
const openOnce = (flags: Flags, env: Environment = {}, { keys } = openMemory(), log = NOOP_LOG) =>
  openCredentials(readConfig(flags, env), keys, log, () => {});

/** Writes a module. Returns its path. */
function moduleFile(text: string): string {
  const path = `${file()}.ts`;
  writeFileSync(path, text);
  return path;
}

/** Opens credentials from a file that is checked only when the test calls `check`. */
async function open(setting: "clientsFile" | "usersFile", text: string) {
  const path = file(text);
  const { log, lines } = capturingLog();
  const checks: (() => void)[] = [];
  const config = readConfig({ [setting]: path }, {});
  const poll: Poll = (_paths, check) => checks.push(check);
  const { accepted } = await openCredentials(config, openMemory().keys, log, poll);
  return {
    path,
    write: (next: string) => writeFileSync(path, next),
    /** Checks the file. Returns the log lines since the last check. */
    check: () => {
      for (const check of checks) check();
      return lines.splice(0).map(({ level, message, fields }) => [level, message, fields.entries]);
    },
    isAccepted: async (): Promise<boolean> =>
      setting === "clientsFile"
        ? (await accepted.lookupClient("token")) !== undefined
        : await accepted.checkUser("bob", "secret"),
  };
}

describe.each([
  ["clientsFile", CLIENT],
  ["usersFile", USER],
] as const)("an emptied file (%s)", (setting, text) => {
  test("revokes its entries when it is empty at two consecutive checks", async () => {
    const file = await open(setting, text);
    file.write("");
    expect(file.check()).toEqual([["warn", EMPTY, undefined]]);
    expect(await file.isAccepted()).toBe(true);
    expect(file.check()).toEqual([["info", READ, 0]]);
    expect(await file.isAccepted()).toBe(false);
    expect(file.check()).toEqual([]);
    file.write(text);
    expect(file.check()).toEqual([["info", READ, 1]]);
    expect(await file.isAccepted()).toBe(true);
  });

  test("revokes nothing when it is written again before the next check", async () => {
    const file = await open(setting, text);
    for (let round = 0; round < 3; round++) {
      file.write("");
      expect(file.check()).toEqual([["warn", EMPTY, undefined]]);
      file.write(text);
      expect(file.check()).toEqual([]);
      expect(await file.isAccepted()).toBe(true);
    }
  });

  test("revokes nothing when it cannot be read at the next check", async () => {
    const file = await open(setting, text);
    file.write("");
    file.check();
    unlinkSync(file.path);
    expect(file.check()).toEqual([["error", NOT_READ, undefined]]);
    file.write("");
    expect(file.check()).toEqual([["warn", EMPTY, undefined]]);
    expect(await file.isAccepted()).toBe(true);
    file.check();
    expect(await file.isAccepted()).toBe(false);
  });

  test("keeps its entries while it is missing or invalid, and is read again when it is valid", async () => {
    const file = await open(setting, text);
    for (const faulty of ["mallory:hunter2\n", undefined]) {
      if (faulty === undefined) unlinkSync(file.path);
      else file.write(text + faulty);
      expect(file.check()).toEqual([["error", NOT_READ, undefined]]);
      expect(file.check()).toEqual([]);
      expect(await file.isAccepted()).toBe(true);
    }
    file.write(`${OTHER[setting]}\n`);
    expect(file.check()).toEqual([["info", READ, 1]]);
    expect(await file.isAccepted()).toBe(false);
    writeFileSync(`${file.path}.new`, text);
    renameSync(`${file.path}.new`, file.path);
    expect(file.check()).toEqual([["info", READ, 1]]);
    expect(await file.isAccepted()).toBe(true);
  });

  test("revokes its entries immediately when it contains only comments", async () => {
    const file = await open(setting, text);
    writeFileSync(`${file.path}.new`, "# nobody\n");
    renameSync(`${file.path}.new`, file.path);
    expect(file.check()).toEqual([["info", READ, 0]]);
    expect(await file.isAccepted()).toBe(false);
  });
});

test("a credentials file that changes just after the start is read again", async () => {
  const clientsFile = file(entryOf("carol", "one"));
  const { log, text } = capturingLog();
  const { accepted } = await openCredentials(readConfig({ clientsFile }, {}), openMemory().keys, log);
  // The length is the same, and the modification time may be, depending on the file system.
  writeFileSync(clientsFile, entryOf("carol", "two"));
  await until(() => text().includes(READ), "the file is read again");
  expect([await accepted.lookupClient("one"), await accepted.lookupClient("two")]).toMatchObject([
    undefined,
    { name: "carol" },
  ]);
});

test("a clients file that is a pipe is read only once", async () => {
  const pipe = file();
  const writer = run(["sh", "-c", 'mkfifo "$1" && echo made && printf %s "$0" > "$1"', CLIENT, pipe]);
  await until(() => writer.stdout() !== "", "the pipe exists");
  const { log, lines } = capturingLog();
  jest.useFakeTimers();
  const config = readConfig({ clientsFile: pipe }, {});
  const { accepted } = await openCredentials(config, openMemory().keys, log);
  jest.advanceTimersByTime(5000);
  jest.useRealTimers();
  expect(await accepted.lookupClient("token")).toMatchObject({ name: "alice" });
  expect([await writer.exited, lines]).toEqual([0, []]);
});

const MD5 = "$apr1$if4VvfQf$H3L.N4bnUtfk9sdo842CJ/";
const [CLIENTS, USERS, MODULE] = ["clientsFile", "usersFile", "authModule"];

/** Returns the reason why credentials from a file are rejected, after the flag and the path. */
async function rejection(setting: string, path: string): Promise<string> {
  const error = await errorOf(openOnce({ [setting]: path }));
  expect(error).toBeInstanceOf(UsageError);
  expect(error.message).not.toContain("\n");
  const start = `--${setting.replace(/[A-Z]/, (letter) => `-${letter.toLowerCase()}`)} "${path}": `;
  expect(error.message).toStartWith(start);
  return error.message.slice(start.length);
}

test.each([
  ["no clients", CLIENTS, "", "the file has no entries"],
  ["a client without a hash", CLIENTS, `${CLIENT}\nbob\n`, 'line 3 is not "name:'],
  ["a token", CLIENTS, "\nalice:s3cret\n", "line 2 has no SHA-256 in hex"],
  ["no users", USERS, "# none yet\n\n", "the file has no entries"],
  ["a user without a hash", USERS, `# users\n${USER}al\n`, 'line 3 is not "user:hash"'],
  ["a plain password", USERS, `al:s3cret\n`, "line 1 (al) has no whole hash"],
  ["MD5", USERS, `${USER}al:${MD5}\n`, "line 2 (al) has no whole hash of bcrypt"],
  ["a syntax error", MODULE, "export const lookupClient = (\n", "cannot load the module: "],
  ["a throw", MODULE, 'throw new Error("a\\nb");\n', "cannot load the module: a"],
  ["no exports", MODULE, "export {};\n", "the module exports neither lookupClient nor checkUser"],
  ["a number", MODULE, "export const checkUser = 1;\n", "checkUser is not a function"],
])("openCredentials rejects a file with %s, in one line", async (_what, setting, text, reason) => {
  const said = await rejection(setting, moduleFile(text));
  expect(said).toStartWith(reason);
  for (const secret of ["s3cret", MD5]) expect(said).not.toContain(secret);
});

test.each([
  [CLIENTS, "missing", "no such file or folder"],
  [CLIENTS, "", "it is a folder, not a file"],
  [USERS, "missing", "no such file or folder"],
  [USERS, "", "it is a folder, not a file"],
  [MODULE, "missing.ts", ""],
])("openCredentials rejects %s with a path that is not a file (%p)", async (setting, name, reason) => {
  expect(await rejection(setting, join(folder, name))).toStartWith(reason);
});

/** What the functions of a module return, and the statuses of a bearer token and a password then. */
const ANSWERS: Readonly<Record<string, readonly [bearer: number, basic: number]>> = {
  undefined: [401, 503],
  null: [401, 503],
  '{ name: "carol", age: 7 }': [200, 503],
  '{ name: "carol", scope: "read" }': [200, 503],
  '{ name: "carol", scope: "Read" }': [503, 503],
  '"carol"': [503, 503],
  "{}": [503, 503],
  "{ name: 7 }": [503, 503],
  "1": [503, 503],
  false: [503, 401],
  true: [503, 200],
  'raise("no database")': [503, 503],
};

const THENABLES = Object.keys(FOREIGN_THENABLES).map((kind) => [
  kind,
  `FOREIGN_THENABLES[${JSON.stringify(kind)}](async () => answers[name]())`,
]);

test.each([["a value", "answers[name]()"], ["a promise", "(async () => answers[name]())()"], ...THENABLES])(
  "of an auth module whose functions return %s, only a client from lookupClient and true from checkUser are accepted",
  async (_what, answer) => {
    const thenables = fileURLToPath(new URL("../../test/thenables.ts", import.meta.url));
    const authModule = moduleFile(
      `import { FOREIGN_THENABLES } from ${JSON.stringify(thenables)};
       const raise = (message: string): never => { throw new Error(message); };
       const answers: unknown[] = [${Object.keys(ANSWERS).map((expression) => `() => (${expression})`)}];
       export const lookupClient = (name: string) => ${answer};
       export const checkUser = (user: string, name: string) => user === "carol" ? ${answer} : false;`,
    );
    // With a clients file before the module, several lookups are combined.
    for (const flags of [{ authModule }, { authModule, clientsFile: file(CLIENT) }]) {
      await using service = startService({ credentials: (await openOnce(flags)).accepted });
      const status = async (path: string, authorization: string): Promise<number> =>
        (await service.send("GET", path, as(authorization))).status;
      for (const [index, [expression, statuses]] of Object.entries(ANSWERS).entries())
        expect([
          expression,
          await status("/api/whoami", `Bearer ${index}`),
          await status("/admin/", basic("carol", `${index}`)),
        ]).toEqual([expression, ...statuses]);
      expect(await status("/admin/", basic("dave", "10"))).toBe(401);
    }
  },
);

test("a module, files and a fixed user are combined", async () => {
  const authModule = moduleFile(
    `export const lookupClient = (token) => {
       if (token === "throw") throw new Error("no database");
       return token === "good" ? { name: "carol" } : undefined;
     };
     export const checkUser = (user, password) => user === "carol" && password === "good";`,
  );
  const flags = { authModule, clientsFile: file(CLIENT), usersFile: file(USER) };
  const env = { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "s3cret words" };
  const { accepted, ...found } = await openOnce(flags, env);
  expect(found).toEqual({ hasClients: true, hasUsers: true, demo: undefined, needsFirstKey: false });
  const clients = ["token", "good", "bad"].map(async (token) => (await accepted.lookupClient(token))?.name);
  expect(await Promise.all(clients)).toEqual(["alice", "carol", undefined]);
  expect(await errorOf(accepted.lookupClient("throw"))).toEqual(new Error("no database"));
  const users = ["admin:s3cret words", "bob:secret", "carol:good", "carol:secret", "admin:secret"].map(
    async (pair) => {
      const [user = "", password = ""] = pair.split(":");
      return accepted.checkUser(user, password);
    },
  );
  expect(await Promise.all(users)).toEqual([true, true, true, false, false]);
});

test.each([
  ["lookupClient", '() => ({ name: "carol" })', { hasClients: true, hasUsers: false }],
  ["checkUser", "() => true", { hasClients: false, hasUsers: true }],
])("a module that exports only %s rejects every credential of the other kind", async (name, source, has) => {
  const { accepted, ...found } = await openOnce({
    authModule: moduleFile(`export const ${name} = ${source};`),
  });
  expect(found).toMatchObject(has);
  const client = await accepted.lookupClient("x");
  expect([client !== undefined, await accepted.checkUser("carol", "x")]).toEqual([
    has.hasClients,
    has.hasUsers,
  ]);
});

test("without a configuration, each start generates a token and a password, and accepts later API keys", async () => {
  const store = openMemory();
  const [first, second] = [await openOnce({}, {}, store), await openOnce({}, {}, store)];
  const { token = "", password = "" } = first.demo ?? {};
  expect([token, password]).toEqual([
    expect.stringMatching(/^todo_\w{49}$/),
    expect.stringMatching(/^\w{24}$/),
  ]);
  expect([second.demo?.token === token, second.demo?.password === password]).toEqual([false, false]);
  const { token: key } = await mint(store.keys, "ci");
  expect(await first.accepted.lookupClient(token)).toMatchObject({ name: "demo" });
  expect(await first.accepted.lookupClient(key)).toMatchObject({ name: "ci" });
  expect(await first.accepted.checkUser("admin", password)).toBe(true);
  expect(await first.accepted.checkUser("admin", second.demo?.password ?? "")).toBe(false);
});

test.each([
  ["an expired key", { lifetime: 1, now: Date.now() - 1000 }, true],
  ["a valid key", {}, false],
])(
  "private mode with %s generates no credentials, and says whether it needs a key",
  async (_what, key, needs) => {
    const store = openMemory();
    const privateMode = async () => openOnce({ private: true }, {}, store);
    expect(await privateMode()).toMatchObject({ demo: undefined, needsFirstKey: true });
    await mint(store.keys, "phone", key);
    expect(await privateMode()).toMatchObject({ demo: undefined, needsFirstKey: needs });
  },
);
