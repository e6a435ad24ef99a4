import { describe, expect, test } from "bun:test";
import { renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { capturingLog } from "../../test/log.ts";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { FOREIGN_THENABLES } from "../../test/thenables.ts";
import { readConfig } from "../config/config.ts";
import type { Poll } from "../config/text-file.ts";
import { UsageError } from "../config/usage-error.ts";
import { hashToken } from "../credential/token.ts";
import { openMemory } from "../storage/memory/store.ts";
import { openCredentials } from "./credentials.ts";

const folder = temporaryFolder();

const CLIENT = `alice:${hashToken("token").toString("hex")}\n`;
/** Made by Apache's htpasswd. The password is "secret". */
const USER = "bob:$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK\n";
const OTHER = { clientsFile: `alice:${"0".repeat(64)}`, usersFile: USER.replace("bob", "al").trim() };
const EMPTY = "credentials file is empty: its entries are revoked if it is still empty at the next check";
const READ = "credentials read again";
const NOT_READ = "credentials not read: the previous ones stay in use";

/** Opens credentials from a file that is checked only when the test calls `check`. */
async function open(setting: "clientsFile" | "usersFile", text: string) {
  const path = join(folder, `${setting}-${crypto.randomUUID()}`);
  writeFileSync(path, text);
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

const MD5 = "$apr1$if4VvfQf$H3L.N4bnUtfk9sdo842CJ/";

/** Returns the message of the error that credentials from a file cause. */
async function rejection(flag: string, setting: string, path: string): Promise<string> {
  const config = readConfig({ [setting]: path }, {});
  const error = await errorOf(openCredentials(config, openMemory().keys, capturingLog().log));
  expect(error).toBeInstanceOf(UsageError);
  expect(error.message).not.toContain("\n");
  const start = `${flag} "${path}": `;
  expect(error.message).toStartWith(start);
  return error.message.slice(start.length);
}

test.each<[what: string, flag: string, setting: string, text: string, reason: string]>([
  ["no clients", "--clients-file", "clientsFile", "", "the file has no entries"],
  ["a client without a hash", "--clients-file", "clientsFile", `${CLIENT}\nbob\n`, 'line 3 is not "name:'],
  ["a token", "--clients-file", "clientsFile", "\nalice:s3cret\n", "line 2 has no SHA-256 in hex"],
  ["no users", "--users-file", "usersFile", "# none yet\n\n", "the file has no entries"],
  ["a user without a hash", "--users-file", "usersFile", `# users\n${USER}al\n`, 'line 3 is not "user:hash"'],
  ["MD5", "--users-file", "usersFile", `${USER}al:${MD5}\n`, "line 2 (al) has no whole hash of bcrypt"],
  [
    "a syntax error",
    "--auth-module",
    "authModule",
    "export const lookupClient = (\n",
    "cannot load the module: ",
  ],
  ["a throw", "--auth-module", "authModule", 'throw new Error("a\\nb");\n', "cannot load the module: a"],
  ["no exports", "--auth-module", "authModule", "export {};\n", "neither lookupClient nor checkUser"],
  ["a number", "--auth-module", "authModule", "export const checkUser = 1;\n", "checkUser is not a function"],
])("openCredentials rejects a file with %s, in one line", async (_what, flag, setting, text, reason) => {
  const path = join(folder, `${crypto.randomUUID()}.ts`);
  writeFileSync(path, text);
  const said = await rejection(flag, setting, path);
  expect(said).toContain(reason);
  for (const secret of ["s3cret", MD5]) expect(said).not.toContain(secret);
});

test.each([
  ["--clients-file", "clientsFile", "missing", "no such file or folder"],
  ["--clients-file", "clientsFile", "", "it is a folder, not a file"],
  ["--users-file", "usersFile", "missing", "no such file or folder"],
  ["--users-file", "usersFile", "", "it is a folder, not a file"],
  ["--auth-module", "authModule", "missing.ts", ""],
])(
  "openCredentials rejects %s with a path that is not a file (%s, %p)",
  async (flag, setting, name, reason) => {
    expect(await rejection(flag, setting, join(folder, name))).toStartWith(reason);
  },
);

describe.each(Object.keys(FOREIGN_THENABLES))("an auth module whose functions return %s", (kind) => {
  /** Opens a module whose lookupClient and checkUser both return a thenable of the expression's value. */
  async function openModule(expression: string, clients?: string) {
    const name = crypto.randomUUID();
    const path = join(folder, `${name}.ts`);
    const thenables = fileURLToPath(new URL("../../test/thenables.ts", import.meta.url));
    writeFileSync(
      path,
      `import { FOREIGN_THENABLES } from ${JSON.stringify(thenables)};
       const thenable = () => FOREIGN_THENABLES[${JSON.stringify(kind)}](() => ${expression});
       export const lookupClient = thenable, checkUser = thenable;`,
    );
    const clientsFile = join(folder, `${name}-clients`);
    if (clients !== undefined) writeFileSync(clientsFile, clients);
    const config = readConfig({ authModule: path, ...(clients !== undefined && { clientsFile }) }, {});
    const { accepted } = await openCredentials(config, openMemory().keys, capturingLog().log);
    return startService({ credentials: accepted });
  }

  test.each<[what: string, expression: string, bearer: number, basic: number]>([
    ["undefined", "Promise.resolve(undefined)", 401, 503],
    ["null", "Promise.resolve(null)", 401, 503],
    ["a client", 'Promise.resolve({ name: "carol" })', 200, 503],
    ["a client with a scope", 'Promise.resolve({ name: "carol", scope: "read" })', 200, 503],
    ["a client with an unknown scope", 'Promise.resolve({ name: "carol", scope: "Read" })', 503, 503],
    ["false", "Promise.resolve(false)", 503, 401],
    ["true", "Promise.resolve(true)", 503, 200],
    ["an error", 'Promise.reject(new Error("no database"))', 503, 503],
  ])(
    "accepts only a client from lookupClient, and only true from checkUser: %s",
    async (_what, expression, bearer, basic) => {
      // With a clients file before the module, several lookups are combined.
      for (const clients of [undefined, CLIENT]) {
        await using service = await openModule(expression, clients);
        const status = async (path: string, authorization: string): Promise<number> =>
          (await service.send("GET", path, { headers: { Authorization: authorization } })).status;
        expect([
          await status("/api/whoami", "Bearer x"),
          await status("/admin/", `Basic ${Buffer.from("bob:secret").toString("base64")}`),
        ]).toEqual([bearer, basic]);
      }
    },
  );
});
