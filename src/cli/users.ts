import { isUtf8 } from "node:buffer";
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import type { Command } from "commander";
import { hashPassword } from "../credential/password.ts";
import { checkedPassword, checkedUserName, parseUsers, withoutUser, withUser } from "../credential/user.ts";
import { type Flags, optionFor, readUsersFile, SETTINGS, UsageError } from "./config.ts";
import { readNewPassword } from "./prompt.ts";
import { harmless } from "./terminal.ts";
import { readText } from "./text-file.ts";

const NEW_FILE_MODE = 0o600;
const PERMISSIONS = 0o7777;

/** What a users file holds, by name. */
type Users = ReadonlyMap<string, string>;

/** Adds `todo users`, which edits the users file. A server that uses the file follows within a second. */
export function addUsersCommand(program: Command): void {
  const users = program.command("users").description("Say who may pass at /admin/.");
  const { outputError } = program.configureOutput();
  users
    .command("add")
    .description("Add a user, or change the password of one; asks for it, or reads it from standard input.")
    .argument("<name>")
    .addOption(optionFor(SETTINGS.usersFile))
    .allowExcessArguments()
    .configureOutput({
      // What looks like a flag may be a password.
      outputError: (message, write) => outputError?.(message.replace(/'-.*'/s, "'-…'"), write),
    })
    .action((name: string, flags: Flags, { args }: Command) => {
      if (args.length === 1) return add(name, flags);
      throw new UsageError(
        "todo users add takes one name: never a password, for arguments are seen by all; it asks for it, or reads it from standard input",
      );
    });
  users
    .command("remove")
    .description("Remove a user.")
    .argument("<name>")
    .addOption(optionFor(SETTINGS.usersFile))
    .action(remove);
  users
    .command("list")
    .description("Print the names of all users.")
    .addOption(optionFor(SETTINGS.usersFile))
    .action(list);
}

async function add(name: string, flags: Flags): Promise<void> {
  const path = usersFile(flags);
  saying(`user ${JSON.stringify(name)}`, () => checkedUserName(name));
  // Before anybody is asked for a password in vain.
  saying(about(path), () => isAbsent(path) || parseUsers(readText(path)));
  const password = await readNewPassword();
  saying("the password", () => checkedPassword(password));
  const passwordHash = await hashPassword(password);
  const before = saying(about(path), () => change(path, (text) => withUser(text, name, passwordHash)));
  process.stdout.write(`${before.has(name) ? "changed the password of" : "added"} ${name}\n`);
}

function remove(name: string, flags: Flags): void {
  const path = usersFile(flags);
  saying(about(path), () => {
    requireUser(parseUsers(readText(path)), name);
    change(path, (text, users) => {
      requireUser(users, name);
      return withoutUser(text, name);
    });
  });
  process.stdout.write(`removed ${name}\n`);
}

function list(flags: Flags): void {
  const path = usersFile(flags);
  const users = saying(about(path), () => parseUsers(readText(path)));
  process.stdout.write([...users.keys()].map((name) => `${harmless(name)}\n`).join(""));
}

function usersFile(flags: Flags): string {
  const path = readUsersFile(flags, process.env);
  if (path === undefined) throw new UsageError("there is no users file: set --users-file or TODO_USERS_FILE");
  return path;
}

const about = (path: string): string => `TODO_USERS_FILE "${path}"`;

/** Turns an Error into a UsageError that says what it is about. */
function saying<T>(what: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw new UsageError(`${what}: ${error instanceof Error ? error.message : error}`);
  }
}

function requireUser(users: Users, name: string): void {
  if (!users.has(name)) throw new Error(`there is no user ${JSON.stringify(name)}`);
}

const isAbsent = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) === undefined;

/**
 * Changes the users file in one step, or makes it; returns the users before. FILE.new is what is written and
 * then renamed, and while it is there it keeps other changes out.
 */
function change(path: string, edit: (text: string, users: Users) => string): Users {
  const file = isAbsent(path) ? path : realpathSync(path);
  const draft = `${file}.new`;
  const descriptor = openDraft(draft);
  let users: Users;
  try {
    const stat = statSync(file, { throwIfNoEntry: false });
    const bytes = stat === undefined ? Buffer.alloc(0) : readFileSync(file);
    if (!isUtf8(bytes)) throw new Error("it is not UTF-8");
    const text = bytes.toString();
    users = parseUsers(text);
    writeFileSync(descriptor, edit(text, users));
    // A server that runs as another user must be able to read it still.
    if (stat !== undefined) fchownSync(descriptor, stat.uid, stat.gid);
    fchmodSync(descriptor, stat === undefined ? NEW_FILE_MODE : stat.mode & PERMISSIONS);
    fsyncSync(descriptor);
    renameSync(draft, file);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  } finally {
    closeSync(descriptor);
  }
  syncFolder(dirname(file));
  return users;
}

function openDraft(path: string): number {
  try {
    return openSync(path, "wx", NEW_FILE_MODE);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    throw new Error(`another change is under way; if none is, one was broken off: remove ${path}`);
  }
}

/** Puts a rename on disk. */
function syncFolder(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
