import { describe, expect, jest, test } from "bun:test";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../../test/command.ts";
import { as, basic, mint } from "../../test/credentials.ts";
import { capturingLog } from "../../test/log.ts";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
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

function moduleFile(text: string): string {
  const path = `${file()}.ts`;
  writeFileSync(path, text);
  return path;
}

const WARNED = ["warn", EMPTY, undefined] as const;
const FAILED = ["error", NOT_READ, undefined] as const;
const READ_AGAIN = ["info", READ, 1] as const;
const REVOKED = ["info", READ, 0] as const;

/** What a file is replaced with before a check, the line of the log, and whether its entry is accepted then. */
type Step = readonly [content: string, line: readonly unknown[] | undefined, isAccepted: boolean];
const EMPTIED: Step = ["empty", WARNED, true];
const STILL_EMPTY: Step = ["empty", REVOKED, false];
const INVALID: Step[] = [
  ["invalid", FAILED, true],
  ["invalid", undefined, true],
  ["missing", FAILED, true],
  ["missing", undefined, true],
];

describe.each([
  ["clientsFile", CLIENT],
  ["usersFile", USER],
] as const)("a file (%s)", (setting, text) => {
  const contents: Readonly<Record<string, string>> = {
    same: text,
    other: `${OTHER[setting]}\n`,
    empty: "",
    comments: "# nobody\n",
    invalid: `${text}mallory:hunter2\n`,
  };

  test.each<[what: string, steps: Step[]]>([
    [
      "that stays empty revokes its entries",
      [EMPTIED, STILL_EMPTY, ["empty", undefined, false], ["same", READ_AGAIN, true]],
    ],
    [
      "that is empty at every other check revokes nothing",
      [EMPTIED, ["same", undefined, true], EMPTIED, ["same", undefined, true]],
    ],
    [
      "that is empty, and then missing, revokes nothing",
      [EMPTIED, ["missing", FAILED, true], EMPTIED, STILL_EMPTY],
    ],
    [
      "that is invalid or missing is kept until it is valid",
      [...INVALID, ["other", READ_AGAIN, false], ["same", READ_AGAIN, true]],
    ],
    ["with comments only revokes its entries immediately", [["comments", REVOKED, false]]],
  ])("%s", async (_what, steps) => {
    const path = file(text);
    const { log, lines } = capturingLog();
    const checks: (() => void)[] = [];
    const poll: Poll = (_paths, check) => checks.push(check);
    const { accepted } = await openCredentials(
      readConfig({ [setting]: path }, {}),
      openMemory().keys,
      log,
      poll,
    );
    for (const [content, line, isAccepted] of steps) {
      const next = contents[content];
      if (next === undefined) rmSync(path, { force: true });
      else renameSync(file(next), path);
      for (const check of checks) check();
      const logged = lines.splice(0).map(({ level, message, fields }) => [level, message, fields.entries]);
      expect([content, logged]).toEqual([content, line === undefined ? [] : [[...line]]]);
      const found =
        setting === "clientsFile"
          ? (await accepted.lookupClient("token")) !== undefined
          : await accepted.checkUser("bob", "secret");
      expect([content, found]).toEqual([content, isAccepted]);
    }
  });
});

test("a credentials file that changes just after the start is read again, and revokes the client's streams", async () => {
  const clientsFile = file(entryOf("carol", "one"));
  const { log, text } = capturingLog();
  const config = readConfig({ clientsFile, private: true }, {});
  const { accepted } = await openCredentials(config, openMemory().keys, log);
  const client = await accepted.lookupClient("one");
  expect(client?.isRevoked?.()).toBe(false);
  // The length is the same, and the modification time may be, depending on the file system.
  writeFileSync(clientsFile, entryOf("carol", "two"));
  await until(() => text().includes(READ), "the file is read again");
  expect(client?.isRevoked?.()).toBe(true);
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
  ["no users", USERS, "# none yet\n\n", "the file has no entries"],
  ["a plain password", USERS, `al:s3cret\n`, "line 1 (al) has no whole hash"],
  ["a syntax error", MODULE, "export const lookupClient = (\n", "cannot load the module: "],
  ["a throw", MODULE, 'throw new Error("a\\nb");\n', "cannot load the module: a"],
  ["no exports", MODULE, "export {};\n", "the module exports neither lookupClient nor checkUser"],
  ["a number", MODULE, "export const checkUser = 1;\n", "checkUser is not a function"],
])("openCredentials rejects a file with %s, in one line", async (_what, setting, text, reason) => {
  const said = await rejection(setting, moduleFile(text));
  expect(said).toStartWith(reason);
  expect(said).not.toContain("s3cret");
});

test.each([
  [CLIENTS, "missing", "no such file or folder"],
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

/** A query of some libraries starts when it is awaited. */
const QUERY = "{ name: 'mallory', then: (resolve, reject) => answer(name).then(resolve, reject) }";
test.each([
  ["a value", "answers[name]()"],
  ["a promise", "answer(name)"],
  ["a query", `(${QUERY})`],
])("an auth module that returns %s accepts only a client, or true from checkUser", async (_what, answer) => {
  const authModule = moduleFile(
    `const raise = (message: string): never => { throw new Error(message); };
       const answers: unknown[] = [${Object.keys(ANSWERS).map((expression) => `() => (${expression})`)}];
       const answer = async (name: string) => answers[name]();
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
});

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
])("private mode with %s generates no credentials, and says if it needs a key", async (_what, key, needs) => {
  const store = openMemory();
  const privateMode = async () => openOnce({ private: true }, {}, store);
  expect(await privateMode()).toMatchObject({ demo: undefined, needsFirstKey: true });
  await mint(store.keys, "phone", key);
  expect(await privateMode()).toMatchObject({ demo: undefined, needsFirstKey: needs });
});
