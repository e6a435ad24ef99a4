import { describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { callTodo, complaintOf } from "../../../test/call-todo.ts";
import { type Command, ended, type Outcome, run } from "../../../test/command.ts";
import { copyWithCheapHashes } from "../../../test/patched-copy.ts";
import { filesIn, temporaryFolder } from "../../../test/temporary.ts";
import { parseUsers } from "../../credential/user.ts";

const folder = temporaryFolder();

const main = await copyWithCheapHashes(join(folder, "program"));
/** Made by Apache's htpasswd. The password is "secret". */
const BCRYPT = "$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK";
const BOB = `bob:${BCRYPT}\n`;
/** A text of many lines, so that a change takes some time. */
const LONG = `#${"x".repeat(99)}\n`.repeat(50_000);

const usersFile = filesIn(folder);

const users = (path: string, args: readonly string[], input?: string | Uint8Array): Promise<Outcome> =>
  callTodo(["users", ...args], { TODO_USERS_FILE: path }, input);
const runUsers = (path: string, args: readonly string[], input?: string | Uint8Array): Command =>
  run([process.execPath, "--no-env-file", main, "users", ...args], { TODO_USERS_FILE: path }, input);

const printed = (stdout: string): Outcome => ({ code: 0, stdout, stderr: "" });
const add = (path: string, name: string, password: string | Uint8Array): Promise<Outcome> =>
  ended(runUsers(path, ["add", name], password));
const remove = (path: string, name: string): Promise<Outcome> => users(path, ["remove", name]);
const text = (path: string): string => readFileSync(path, "utf8");
const permissions = (path: string): string => (statSync(path).mode & 0o7777).toString(8);

async function passes(path: string, name: string, password: string): Promise<boolean> {
  return Bun.password.verify(password, parseUsers(text(path)).get(name) ?? "");
}

describe("todo users", () => {
  test("adds, changes, lists and removes users", async () => {
    const path = usersFile();
    expect(await add(path, "alice", "password one\n")).toEqual(printed("added alice\n"));
    expect(await add(path, "Zoë 😀", "password two\n")).toEqual(printed("added Zoë 😀\n"));
    expect(await users(path, ["list"])).toEqual(printed("alice\nZoë 😀\n"));
    expect(await passes(path, "alice", "password one")).toBe(true);
    expect(await add(path, "alice", "password three\n")).toEqual(printed("changed the password of alice\n"));
    expect(await passes(path, "alice", "password one")).toBe(false);
    expect(await passes(path, "alice", "password three")).toBe(true);
    expect(await passes(path, "Zoë 😀", "password two")).toBe(true);
    expect(await remove(path, "alice")).toEqual(printed("removed alice\n"));
    expect(await complaintOf(remove(path, "alice"), 3)).toEndWith('user "alice" does not exist');
    expect(await users(path, ["list"])).toEqual(printed("Zoë 😀\n"));
    expect(await remove(path, "Zoë 😀")).toEqual(printed("removed Zoë 😀\n"));
    expect(await users(path, ["list"])).toEqual(printed(""));
    expect(existsSync(`${path}.part`)).toBe(false);
  });

  test("uses the first line as the password, including spaces", async () => {
    const path = usersFile();
    expect(await add(path, "alice", " password one : \r\n\ttwo\n")).toEqual(printed("added alice\n"));
    expect(await passes(path, "alice", " password one : ")).toBe(true);
    expect((await add(path, "alice", "\uFEFFpassword two\r\n")).code).toBe(0);
    expect(await passes(path, "alice", "password two")).toBe(true);
  });

  test("reads only the first line, without waiting for more", async () => {
    const path = usersFile();
    const line = `mkfifo "$1" && exec 3<>"$1" && echo password one >&3 && exec "$0" --no-env-file "${main}" users add alice <&3`;
    await using command = run(["sh", "-c", line, process.execPath, usersFile()], { TODO_USERS_FILE: path });
    expect(await command.exited).toBe(0);
    expect([command.stdout(), command.stderr()]).toEqual(["added alice\n", ""]);
  });

  test("keeps the permissions of the file, and creates a new one for its owner only", async () => {
    const [fresh, open] = [usersFile(), usersFile(BOB)];
    chmodSync(open, 0o664);
    const lines = [fresh, open].map((path) => {
      const line = `umask 0; echo password one | "$0" --no-env-file "${main}" users add alice`;
      return run(["sh", "-c", line, process.execPath], { TODO_USERS_FILE: path }).exited;
    });
    expect(await Promise.all(lines)).toEqual([0, 0]);
    expect([permissions(fresh), permissions(open)]).toEqual(["600", "664"]);
    await remove(open, "alice");
    expect(permissions(open)).toBe("664");
  });

  test("changes the target of a symbolic link", async () => {
    const [target, link] = [usersFile(BOB), usersFile()];
    symlinkSync(target, link);
    expect((await add(link, "alice", "password one")).code).toBe(0);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect([...parseUsers(text(target)).keys()]).toEqual(["bob", "alice"]);
    // As a killed command leaves it.
    writeFileSync(`${target}.part`, "");
    expect(await complaintOf(users(link, ["remove", "bob"]))).toContain(`remove ${target}.part`);
    rmSync(`${target}.part`);
    expect(await remove(link, "bob")).toEqual(printed("removed bob\n"));
  });
});

describe("todo users rejects, without any change,", () => {
  const ALICE = ["add", "alice"];
  test.each<[what: string, args: readonly string[], input: string | Uint8Array, complaint: string]>([
    ["an empty name", ["add", ""], "hunter2", 'user "": must not be empty'],
    ["a name of two lines", ["add", "a\nb"], "hunter2", 'user "a\\nb": must have no control characters'],
    ["an empty password", ALICE, "\r\nhunter2", "nothing was entered; nothing was changed"],
    ["a megabyte", ALICE, `hunter2${"x".repeat(1 << 20)}`, "the password: must have at most 72 bytes"],
    ["Latin-1", ALICE, Buffer.from("hunter2\xe9\n", "latin1"), "standard input: it is not UTF-8"],
    ["UTF-16", ALICE, Buffer.from("hunter2\n", "utf16le"), "standard input: it has NUL characters, as UTF"],
    ["a password as an argument", [...ALICE, "hunter2"], "one", "todo users add takes one name and never a"],
    ["a password as the value of a flag", [...ALICE, "--password", "hunter2"], "", "unknown option '--pa"],
    ["a password in a short flag", [...ALICE, "-phunter2"], "one", "unknown option '-…'"],
    ["a flag of other commands", [...ALICE, "--store", "x"], "one", "unknown option '--store'"],
    [
      "a mistyped flag",
      [...ALICE, "--user-file", "x"],
      "one",
      "unknown option '--user-file' (Did you mean --u",
    ],
  ])("%s, without repeating a password", async (_what, args, input, complaint) => {
    const path = usersFile(BOB);
    const line = await complaintOf(users(path, args, input));
    expect(line).toStartWith(complaint.replace("PATH", path));
    expect(line).not.toContain("hunter2");
    expect(text(path)).toBe(BOB);
  });

  test("a command without a users file", async () => {
    expect(await complaintOf(callTodo(["users", "list"]))).toBe(
      "no users file is configured: set --users-file or TODO_USERS_FILE",
    );
  });

  test("a missing file, except for add", async () => {
    const dangling = usersFile();
    symlinkSync(join(folder, "missing"), dangling);
    const missing = join(folder, "missing");
    for (const [path, line] of [
      [missing, "list"],
      [missing, "remove bob"],
      [dangling, "add bob"],
    ] as const)
      expect(await complaintOf(users(path, line.split(" "), "one"))).toBe(
        `TODO_USERS_FILE "${path}": no such file or folder`,
      );
    expect(lstatSync(dangling).isSymbolicLink()).toBe(true);
    expect(readdirSync(folder)).not.toContain("missing");
  });

  test("a file with a line without a hash", async () => {
    const before = `${BOB}al\n`;
    const path = usersFile(before);
    const line = await complaintOf(users(path, ["add", "bob"], "password one"));
    expect(line).toStartWith(`TODO_USERS_FILE "${path}": line 2 is not "user:hash"`);
    expect(text(path)).toBe(before);
    expect(existsSync(`${path}.part`)).toBe(false);
  });

  test("a file that cannot be written completely", async () => {
    const before = `${LONG}${BOB}`;
    const path = usersFile(before);
    const line = `trap '' XFSZ; ulimit -f 64; exec "$0" --no-env-file "${main}" users remove bob`;
    const command = run(["sh", "-c", line, process.execPath], { TODO_USERS_FILE: path });
    expect(await complaintOf(ended(command))).toContain(`TODO_USERS_FILE "${path}": EFBIG`);
    expect(text(path) === before).toBe(true);
    expect(existsSync(`${path}.part`)).toBe(false);
  });
});

test("concurrent changes lose no user: each one succeeds, or names the file of the other one", async () => {
  const names = ["user0", "user1", "user2", "user3"];
  const path = usersFile(LONG + names.map((name) => `${name}:${BCRYPT}\n`).join(""));
  const outcomes = await Promise.all(names.map((name) => ended(runUsers(path, ["remove", name]))));
  const left = names.filter((_, index) => outcomes[index]?.code !== 0);
  for (const outcome of outcomes.filter(({ code }) => code !== 0))
    expect(await complaintOf(outcome)).toBe(
      `TODO_USERS_FILE "${path}": another command is writing ${path}.part: if no other command is running, remove ${path}.part`,
    );
  expect(left.length).toBeLessThan(names.length);
  expect([...parseUsers(text(path)).keys()]).toEqual(left);
  expect(existsSync(`${path}.part`)).toBe(false);
});
