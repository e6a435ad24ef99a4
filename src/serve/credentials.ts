import { scryptSync } from "node:crypto";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chain } from "../awaitable.ts";
import type { Config } from "../config/config.ts";
import { describeFile, type Sourced } from "../config/setting-values.ts";
import { type Poll, readText, watchFiles } from "../config/text-file.ts";
import { toUsageError, UsageError } from "../config/usage-error.ts";
import { createClientLookup, isScope, type LookupClient, parseClients } from "../credential/client.ts";
import { createKeyLookup, isExpired, type KeyStore } from "../credential/key.ts";
import { createPasswordVerifier } from "../credential/password.ts";
import { isCurrent, type StoredEntry } from "../credential/session.ts";
import { hashToken, mintToken, randomBase62 } from "../credential/token.ts";
import { type CheckUser, createFixedUserCheck, createUserCheck, parseUsers } from "../credential/user.ts";
import { errorMessage } from "../error-message.ts";
import type { Credentials } from "../http/auth/authenticator.ts";
import type { Log } from "../http/observability/log.ts";
import { isObject } from "../validation.ts";

export interface ConfiguredCredentials {
  /** What the service accepts. */
  readonly accepted: Credentials;
  /** Whether any client is configured at start. */
  readonly hasClients: boolean;
  readonly hasUsers: boolean;
  /** Generated at start if nothing is configured; to be shown once. */
  readonly demo: { readonly token: string; readonly user: string; readonly password: string } | undefined;
  /** Whether private mode would reject every request, so that the server needs a first API key. */
  readonly needsFirstKey: boolean;
}

/**
 * Opens all configured sources of credentials. Throws a UsageError for a source that cannot be used.
 * @param poll calls a check of files repeatedly
 */
export async function openCredentials(
  config: Config,
  keys: KeyStore,
  log: Log,
  poll?: Poll,
): Promise<ConfiguredCredentials> {
  const { access } = config;
  const { clientsFile, usersFile, adminUser, adminPassword, authModule } = config.credentials;
  const module = authModule && (await importAuthModule(authModule));
  const allKeys = await keys.list();
  const hasKeys = allKeys.length > 0;
  const isConfigured = [clientsFile, usersFile, adminUser, authModule].some((one) => one !== undefined);
  const needsFirstKey =
    access.privateMode &&
    !isConfigured &&
    allKeys.every((key) => key.kind !== undefined || isExpired(key, Date.now()));
  const lookups: LookupClient[] = [];
  const checks: CheckUser[] = [];
  const entries: StoredEntry[] = [];
  const needsDemo = !access.privateMode && !isConfigured && !hasKeys;
  const demo = needsDemo ? { token: mintToken(), user: "admin", password: randomBase62(24) } : undefined;
  if (demo !== undefined) {
    lookups.push(createClientLookup([{ client: { name: "demo" }, tokenHash: hashToken(demo.token) }]));
    checks.push(createFixedUserCheck(demo.user, demo.password));
  }
  if (clientsFile !== undefined) {
    const clients = watchFile(clientsFile, parseClientsFile, log, poll);
    lookups.push((token) => {
      const client = clients().lookup(token);
      if (client === undefined || !access.privateMode) return client;
      return { ...client, isRevoked: () => clients().lookup(token) === undefined };
    });
    entries.push((kind, name) => (kind === "client" ? clients().entries.get(name) : undefined));
  }
  const storedEntry: StoredEntry = (kind, name) => {
    const found = entries.map((entry) => entry(kind, name));
    return found.every((entry) => entry === undefined) ? undefined : found.join(" ");
  };
  lookups.push(createKeyLookup(keys, Date.now, (parent) => isCurrent(parent, storedEntry)));
  if (module?.lookupClient !== undefined) lookups.push(module.lookupClient);
  if (adminUser !== undefined && adminPassword !== undefined) {
    checks.push(createFixedUserCheck(adminUser, adminPassword));
    // Slow to guess, because the store contains a hash of it.
    const entry = access.privateMode
      ? scryptSync(adminPassword, `todo-service ${adminUser}`, 32).toString("hex")
      : "";
    entries.push((kind, name) => (kind === "user" && name === adminUser ? entry : undefined));
  }
  if (usersFile !== undefined) {
    const hashes = watchFile(usersFile, parseUsers, log, poll);
    entries.push((kind, name) => (kind === "user" ? hashes().get(name) : undefined));
    checks.push(createUserCheck(hashes, createPasswordVerifier(), () => performance.now()));
  }
  if (module?.checkUser !== undefined) checks.push(module.checkUser);
  const hasClients = lookups.length > 1 || hasKeys || needsFirstKey;
  return {
    accepted: { keys, lookupClient: firstClient(lookups), checkUser: combineChecks(checks), storedEntry },
    hasClients,
    hasUsers: checks.length > 0,
    demo,
    needsFirstKey,
  };
}

/** Returns a lookup that tries each in turn, in the same turn of the event loop where they can. */
function firstClient([lookup, ...others]: readonly LookupClient[]): LookupClient {
  if (lookup === undefined) return () => undefined;
  const next = firstClient(others);
  return (token) => chain(lookup(token), (client) => client ?? next(token));
}

/** Returns a check that tries each in turn. */
function combineChecks(checks: readonly CheckUser[]): CheckUser {
  if (checks[0] !== undefined && checks.length === 1) return checks[0];
  return async (...asked) => {
    for (const check of checks) if (await check(...asked)) return true;
    return false;
  };
}

const EMPTY = "credentials file is empty: its entries are revoked if it is still empty at the next check";

function parseClientsFile(text: string) {
  const clients = parseClients(text);
  const entries = new Map<string, string>();
  for (const { client, tokenHash } of clients) {
    const entry = `${Buffer.from(tokenHash).toString("hex")} ${client.scope}`;
    entries.set(client.name, `${entries.get(client.name) ?? ""} ${entry}`);
  }
  return { lookup: createClientLookup(clients), entries, size: clients.length };
}

/**
 * Returns a function that returns the parsed entries of a file. The file is read now and after each change. If it cannot
 * be read, logs the reason and keeps the previous entries. A file without entries revokes all of them. An empty file does so
 * at the second check in a row, because an editor may truncate a file before it writes the new text.
 */
function watchFile<T extends { readonly size: number }>(
  file: Sourced,
  parse: (text: string) => T,
  log: Log,
  poll: Poll | undefined,
): () => T {
  const { value: path } = file;
  let read: string;
  let current: T;
  let isEmpty = false;
  try {
    read = readText(path);
    current = parse(read);
    if (current.size === 0) throw new Error("the file has no entries: add one, or remove the setting");
  } catch (error) {
    throw toUsageError(describeFile(file), error);
  }
  const check = (): void => {
    const wasEmpty = isEmpty;
    isEmpty = false;
    const text = readText(path);
    isEmpty = text === "";
    if (text === read) return;
    if (isEmpty && !wasEmpty) {
      log.warn({ file: path }, EMPTY);
      return;
    }
    read = text;
    current = parse(text);
    log.info({ file: path, entries: current.size }, "credentials read again");
  };
  const onFailure = (reason: string): void =>
    log.error({ file: path, reason }, "credentials not read: the previous ones stay in use");
  watchFiles([path], check, onFailure, poll);
  return () => current;
}

/** Loads the operator's module. Its functions' results are checked, because the types of a loaded module are not. */
async function importAuthModule(file: Sourced) {
  const subject = describeFile(file);
  const load = async (): Promise<Readonly<Record<string, unknown>>> =>
    import(pathToFileURL(resolve(file.value)).href);
  const module = await load().catch((error) => {
    throw new UsageError(`${subject}: cannot load the module: ${errorMessage(error).split("\n")[0]}`);
  });
  const [lookup, check] = ["lookupClient", "checkUser"].map((name) => {
    const exported = module[name];
    if (exported === undefined || isFunction(exported)) return exported;
    throw new UsageError(`${subject}: ${name} is not a function`);
  });
  if (lookup === undefined && check === undefined)
    throw new UsageError(`${subject}: the module exports neither lookupClient nor checkUser`);
  return { lookupClient: lookup && checkedLookup(lookup), checkUser: check && checkedUserCheck(check) };
}

type Exported = (...values: readonly string[]) => unknown;

const isFunction = (value: unknown): value is Exported => typeof value === "function";

function checkedLookup(exported: Exported): LookupClient {
  return async (token) => {
    const found = await exported(token);
    if (found === undefined || found === null) return undefined;
    if (!isObject(found) || typeof found.name !== "string")
      throw new Error("lookupClient must return a client with a name, undefined or null");
    const { name, scope } = found;
    if (scope === undefined) return { name };
    if (!isScope(scope)) throw new Error('the scope of a client must be "read", "write" or undefined');
    return { name, scope };
  };
}

function checkedUserCheck(exported: Exported): CheckUser {
  return async (user, password) => {
    const passed = await exported(user, password);
    if (typeof passed === "boolean") return passed;
    throw new Error("checkUser must return true or false");
  };
}
