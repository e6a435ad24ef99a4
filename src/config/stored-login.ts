import { existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { replaceFileAtomic } from "../storage/atomic-file.ts";
import { bearerToken, type Environment, serviceUrl } from "./setting-values.ts";
import { readText } from "./text-file.ts";
import { asUsageError, UsageError } from "./usage-error.ts";

const OTHER_USERS = 0o077;

/** A service, and the token that only this service may receive. */
export interface StoredLogin {
  readonly url: string;
  readonly token: string;
}

/** Returns the path of the file that `todo login` writes: the URL in one line, the token in the next. */
export function loginFile({ XDG_CONFIG_HOME: folder = "" }: Environment): string {
  // The XDG Base Directory Specification says to ignore relative paths.
  return join(isAbsolute(folder) ? folder : join(homedir(), ".config"), "todo-service", "login");
}

/** Returns the stored login, if any. Throws a UsageError if other users can read it or if it is damaged. */
export function readLogin(env: Environment): StoredLogin | undefined {
  const file = loginFile(env);
  if (!existsSync(file)) return undefined;
  // Windows has no such permissions.
  if (process.platform !== "win32" && (statSync(file).mode & OTHER_USERS) !== 0)
    throw new UsageError(`other users may read or change the token in ${file}: run chmod 600 ${file}`);
  const [url = "", token = ""] = asUsageError(file, () => readText(file)).split(/\r?\n/);
  try {
    return { url: serviceUrl(url), token: bearerToken(token) };
  } catch (cause) {
    throw new UsageError(`${file} is damaged: run todo login URL again, or todo logout`, { cause });
  }
}

/** Stores or replaces the login in a file that only this user can read. */
export function storeLogin(env: Environment, { url, token }: StoredLogin): Promise<void> {
  const file = loginFile(env);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  return replaceFileAtomic(file, 0o600, async (part) => writeFileSync(part, `${url}\n${token}\n`));
}
