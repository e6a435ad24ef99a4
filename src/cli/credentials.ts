import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type LookupClient, lookupAmong, parseClients } from "../credential/client.ts";
import { type KeyStore, lookupKey } from "../credential/key.ts";
import { passwordVerifier } from "../credential/password.ts";
import { hashToken, mintToken, randomBase62 } from "../credential/token.ts";
import { type CheckUser, checkAmong, checkFixedPair, parseUsers } from "../credential/user.ts";
import type { Log } from "../http/log.ts";
import { type Config, UsageError } from "./config.ts";
import { lookAgain, readText } from "./text-file.ts";

export interface Credentials {
  readonly lookupClient: LookupClient;
  /** Whether there is anybody to look up, at the start. */
  readonly hasClients: boolean;
  readonly checkUser: CheckUser | undefined;
  /** Made for this start, because nothing was configured; to be shown once. */
  readonly demo: { readonly token: string; readonly user: string; readonly password: string } | undefined;
}

/** Puts together who may pass, from all that is configured; throws a UsageError for what cannot be used. */
export async function openCredentials(config: Config, keys: KeyStore, log: Log): Promise<Credentials> {
  const { clientsFile, usersFile, fixedPair, authModule } = config;
  const module = authModule === undefined ? {} : await importAuthModule(authModule);
  const hasKeys = (await keys.list()).length > 0;
  if ([clientsFile, usersFile, fixedPair, authModule].every((one) => one === undefined) && !hasKeys) {
    return demoCredentials(keys);
  }
  const lookups: LookupClient[] = [];
  const checks: CheckUser[] = [];
  if (clientsFile !== undefined) {
    const lookup = watched("TODO_CLIENTS_FILE", clientsFile, clientsIn, log);
    lookups.push((token) => lookup()(token));
  }
  lookups.push(lookupKey(keys, Date.now));
  if (module.lookupClient !== undefined) lookups.push(module.lookupClient);
  if (fixedPair !== undefined) checks.push(checkFixedPair(fixedPair.user, fixedPair.password));
  if (usersFile !== undefined) {
    const hashes = watched("TODO_USERS_FILE", usersFile, usersIn, log);
    checks.push(checkAmong(hashes, passwordVerifier(), () => performance.now()));
  }
  if (module.checkUser !== undefined) checks.push(module.checkUser);
  const hasClients = lookups.length > 1 || hasKeys;
  return { lookupClient: firstClient(lookups), hasClients, checkUser: anyOf(checks), demo: undefined };
}

function demoCredentials(keys: KeyStore): Credentials {
  const demo = { token: mintToken(), user: "admin", password: randomBase62(24) };
  const lookup = lookupAmong([{ client: { name: "demo" }, tokenHash: hashToken(demo.token) }]);
  return {
    lookupClient: firstClient([lookup, lookupKey(keys, Date.now)]),
    hasClients: true,
    checkUser: checkFixedPair(demo.user, demo.password),
    demo,
  };
}

/** Asks one after the other; what is known at once is answered at once. */
function firstClient([lookup, ...others]: readonly LookupClient[]): LookupClient {
  if (lookup === undefined) return () => undefined;
  const next = firstClient(others);
  return (token) => {
    const found = lookup(token);
    return found instanceof Promise ? found.then((client) => client ?? next(token)) : (found ?? next(token));
  };
}

function anyOf(checks: readonly CheckUser[]): CheckUser | undefined {
  if (checks.length < 2) return checks[0];
  return async (...asked) => {
    for (const check of checks) if (await check(...asked)) return true;
    return false;
  };
}

/** What a credentials file comes to, and how many entries it has. */
interface FileContent<T> {
  readonly value: T;
  readonly entries: number;
}

function clientsIn(text: string): FileContent<LookupClient> {
  const clients = parseClients(text);
  return { value: lookupAmong(clients), entries: clients.length };
}

function usersIn(text: string): FileContent<ReadonlyMap<string, string>> {
  const users = parseUsers(text);
  return { value: users, entries: users.size };
}

/**
 * What a file says now: read at once, and again whenever it changes. A change that cannot be read is
 * logged, and what was there before stays in force; one that leaves no entry lets nobody pass.
 */
function watched<T>(
  variable: string,
  path: string,
  parse: (text: string) => FileContent<T>,
  log: Log,
): () => T {
  let read: string;
  let current: T;
  let trouble: string | undefined;
  try {
    read = readText(path);
    const { value, entries } = parse(read);
    if (entries === 0) throw new Error("it has no entry: add one, or leave the setting out");
    current = value;
  } catch (error) {
    throw new UsageError(`${variable} "${path}": ${error instanceof Error ? error.message : error}`);
  }
  const look = (): void => {
    try {
      const text = readText(path);
      trouble = undefined;
      // An editor may be between emptying the file and writing it.
      if (text === read || text === "") return;
      read = text;
      const { value, entries } = parse(text);
      current = value;
      log.info({ file: path, entries }, "credentials read again");
    } catch (error) {
      const said = trouble;
      trouble = error instanceof Error ? error.message : String(error);
      if (trouble === said) return;
      log.error({ file: path, reason: trouble }, "credentials not read: those from before stay in force");
    }
  };
  lookAgain([path], look);
  return () => current;
}

async function importAuthModule(
  path: string,
): Promise<{ lookupClient?: LookupClient; checkUser?: CheckUser }> {
  const url = pathToFileURL(resolve(path)).href;
  let module: Readonly<Record<string, unknown>>;
  try {
    module = await import(url);
  } catch (error) {
    const reason = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
    throw new UsageError(`TODO_AUTH_MODULE "${path}": it cannot be loaded: ${reason}`);
  }
  const { lookupClient, checkUser } = module;
  if (lookupClient === undefined && checkUser === undefined) {
    throw new UsageError(`TODO_AUTH_MODULE "${path}": it exports neither lookupClient nor checkUser`);
  }
  return {
    ...(lookupClient !== undefined && { lookupClient: lookupFrom(path, lookupClient) }),
    ...(checkUser !== undefined && { checkUser: checkFrom(path, checkUser) }),
  };
}

type Exported = (...values: readonly string[]) => unknown;

const isFunction = (value: unknown): value is Exported => typeof value === "function";

/** A module is not type-checked when it is loaded, so that what it gives is checked at each call. */
function lookupFrom(path: string, exported: unknown): LookupClient {
  if (!isFunction(exported))
    throw new UsageError(`TODO_AUTH_MODULE "${path}": its lookupClient is not a function`);
  return async (token) => {
    const found = await exported(token);
    if (found === undefined || found === null) return undefined;
    if (typeof found === "object" && "name" in found && typeof found.name === "string")
      return { name: found.name };
    throw new Error("lookupClient gave neither a client with a name nor nothing");
  };
}

function checkFrom(path: string, exported: unknown): CheckUser {
  if (!isFunction(exported))
    throw new UsageError(`TODO_AUTH_MODULE "${path}": its checkUser is not a function`);
  return async (user, password) => {
    const passed = await exported(user, password);
    if (typeof passed === "boolean") return passed;
    throw new Error("checkUser gave neither true nor false");
  };
}
