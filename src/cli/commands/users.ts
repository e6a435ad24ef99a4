import {
  chmodSync,
  chownSync,
  lstatSync,
  readlinkSync,
  realpathSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { type Flags, readSettings } from "../../config/config.ts";
import { describeFile, type Sourced } from "../../config/setting-values.ts";
import { SETTINGS, SettingOption } from "../../config/settings.ts";
import { readText } from "../../config/text-file.ts";
import { asUsageError, notFound, toUsageError, UsageError } from "../../config/usage-error.ts";
import { hashPassword } from "../../credential/password.ts";
import {
  parseUsers,
  removeUserEntry,
  setUserEntry,
  validatePassword,
  validateUserName,
} from "../../credential/user.ts";
import { escapeControls } from "../../escape-controls.ts";
import { replaceFileAtomic } from "../../storage/atomic-file.ts";
import type { CommandProcess } from "../terminal/output.ts";
import { readNewPassword } from "../terminal/prompt.ts";

const NEW_FILE_MODE = 0o600;
const PERMISSIONS = 0o7777;

/** Password hashes by user name. */
type Users = ReadonlyMap<string, string>;

/** Adds `todo users`, which edits the users file. A server that uses the file reads changes within a second. */
export function addUsersCommand(program: Command, process: CommandProcess): void {
  const users = program.command("users").description("Manage users of /admin/.");
  const { outputError } = program.configureOutput();
  const command = (name: string, description: string): Command =>
    users.command(name).description(description).addOption(new SettingOption(SETTINGS.credentials.usersFile));
  command("add", "Add a user, or change their password. Prompts for it, or reads it from standard input.")
    .argument("<name>")
    .allowExcessArguments()
    .configureOutput({
      // An argument that looks like a flag may be a password, unless it has only the characters of a long flag.
      outputError: (message, write) =>
        outputError?.(message.replace(/'(?!--[a-z-]+(?:=[^'\n]*)?'\n(?:\([^'\n]*\n)?$)-.*'/s, "'-…'"), write),
    })
    .action((name: string, flags: Flags, { args }: Command) => {
      if (args.length === 1) return add(process, name, flags);
      throw new UsageError(
        "todo users add takes one name and never a password, because other users can see arguments; it prompts for the password or reads it from standard input",
      );
    });
  command("remove", "Remove a user.")
    .argument("<name>")
    .action((name: string, flags: Flags) => remove(process, name, flags));
  command("list", "Print the names of all users.").action((flags: Flags) => list(process, flags));
}

async function add(process: CommandProcess, name: string, flags: Flags): Promise<void> {
  const file = readUsersFile(process, flags);
  asUsageError(`user ${JSON.stringify(name)}`, () => validateUserName(name));
  // Check the file before the prompt, so that nobody types a password in vain.
  if (!isAbsent(file.value)) readUsers(file);
  const password = await readNewPassword(process);
  asUsageError("the password", () => validatePassword(name, password));
  const passwordHash = await hashPassword(password);
  const before = await change(file, (text) => setUserEntry(text, name, passwordHash));
  process.stdout.write(`${before.has(name) ? "changed the password of" : "added"} ${name}\n`);
}

async function remove(process: CommandProcess, name: string, flags: Flags): Promise<void> {
  const file = readUsersFile(process, flags);
  // The change itself would create a missing file.
  if (!readUsers(file).has(name))
    throw notFound(`${describeFile(file)}: user ${JSON.stringify(name)} does not exist`);
  await change(file, (text) => removeUserEntry(text, name));
  process.stdout.write(`removed ${name}\n`);
}

function list(process: CommandProcess, flags: Flags): void {
  const names = [...readUsers(readUsersFile(process, flags)).keys()];
  process.stdout.write(names.map((name) => `${escapeControls(name)}\n`).join(""));
}

function readUsersFile(process: CommandProcess, flags: Flags): Sourced {
  const { usersFile } = readSettings({ usersFile: SETTINGS.credentials.usersFile }, flags, process.env);
  if (usersFile === undefined) {
    throw new UsageError("no users file is configured: set --users-file or TODO_USERS_FILE");
  }
  return usersFile;
}

const readUsers = (file: Sourced): Users =>
  asUsageError(describeFile(file), () => parseUsers(readText(file.value)));

const isAbsent = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) === undefined;

/** Returns the file behind symbolic links. `realpathSync` of Bun fails if another command replaces the file meanwhile. */
function followLinks(path: string): string {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat?.isSymbolicLink() !== true) return path;
  return followLinks(resolve(realpathSync(dirname(path)), readlinkSync(path)));
}

/** Changes or creates the users file atomically. Resolves with the users before the change. */
async function change(setting: Sourced, edit: (text: string) => string): Promise<Users> {
  try {
    const file = followLinks(setting.value);
    return await replaceFileAtomic(file, NEW_FILE_MODE, async (part) => {
      const stat = statSync(file, { throwIfNoEntry: false });
      const text = stat === undefined ? "" : readText(file);
      const users = parseUsers(text);
      writeFileSync(part, edit(text));
      // A server that runs as another user must still be able to read the file.
      if (stat !== undefined) chownSync(part, stat.uid, stat.gid);
      chmodSync(part, stat === undefined ? NEW_FILE_MODE : stat.mode & PERMISSIONS);
      return users;
    });
  } catch (error) {
    throw toUsageError(describeFile(setting), error);
  }
}
