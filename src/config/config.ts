import { existsSync } from "node:fs";
import { Option } from "commander";
import {
  assertKnownVariables,
  assertNoFlagsOfNpm,
  type Environment,
  isKubernetesVariable,
} from "./environment.ts";
import { CLIENT_SETTINGS, getVariables, longName, SETTINGS, type Setting } from "./settings.ts";
import { loginFile, readLogin } from "./stored-login.ts";
import { asUsageError, UsageError } from "./usage-error.ts";

/** The values of the flags on the command line, by attribute name, such as `storeFile`. */
export type Flags = Partial<Readonly<Record<string, string | boolean>>>;

export type Config = ReturnType<typeof readConfig>;

/** The value of a setting, and the flag or variable that it comes from. */
export interface Sourced {
  readonly value: string;
  /** The name to use in error messages, such as `--users-file` or `TODO_USERS_FILE`. */
  readonly source: string;
}

/** Reads and checks all settings of `todo serve`. Throws a UsageError for the first invalid one. */
export function readConfig(flags: Flags, env: Environment) {
  assertKnownVariables(env);
  const { read, readOr, readSourced, assertNotBoth } = reader(flags, env);
  assertNotBoth(SETTINGS.adminPassword, SETTINGS.adminPasswordFile);

  const user = readSourced(SETTINGS.adminUser);
  // The value of the second setting is the text of the file.
  const password = readSourced(SETTINGS.adminPassword) ?? readSourced(SETTINGS.adminPasswordFile);
  assertHasPartner(user, password, "a password", SETTINGS.adminPassword, SETTINGS.adminPasswordFile);
  assertHasPartner(password, user, "a user", SETTINGS.adminUser);
  return {
    ...readAddress(flags, env),
    portSource: getSource(SETTINGS.port, flags, env),
    store: readStore(flags, env),
    seed: readSourced(SETTINGS.seed),
    storeConnections: readOr(SETTINGS.storeConnections),
    backupDir: readSourced(SETTINGS.backupDir),
    backupEvery: readOr(SETTINGS.backupEvery),
    backupKeep: readOr(SETTINGS.backupKeep),
    maxTodos: readMaxTodos(flags, env),
    maxEvents: readOr(SETTINGS.maxEvents),
    limits: {
      maxRequests: readOr(SETTINGS.maxRequests),
      maxSubscribers: readOr(SETTINGS.maxSubscribers),
      maxSubscribersPerNetwork: read(SETTINGS.maxSubscribersPerNetwork),
    },
    stopDelay: readOr(SETTINGS.stopDelay),
    clientsFile: readSourced(SETTINGS.clientsFile),
    adminCredentials: user && password && { user: user.value, password: password.value },
    usersFile: readUsersFile(flags, env),
    authModule: readSourced(SETTINGS.authModule),
    access: {
      privateMode: readOr(SETTINGS.private),
      realm: readOr(SETTINGS.realm),
      basicFailures: readOr(SETTINGS.basicFailures),
      allowBasicOverHttp: readOr(SETTINGS.allowBasicOverHttp),
    },
    network: {
      trustedProxies: readOr(SETTINGS.trustedProxy),
      allowedHosts: readOr(SETTINGS.allowedHosts),
      corsOrigins: readOr(SETTINGS.corsOrigins),
    },
    mcp: readOr(SETTINGS.mcp),
    metricsPort: read(SETTINGS.metricsPort),
    metricsPortSource: getSource(SETTINGS.metricsPort, flags, env),
    metricsHost: readOr(SETTINGS.metricsHost),
    logLevel: readOr(SETTINGS.logLevel),
    accessLog: readOr(SETTINGS.accessLog),
    simulation: read(SETTINGS.simulate),
  };
}

/** Returns the URL of the store. Throws a UsageError as `readConfig` does. */
export function readStore(flags: Flags, env: Environment): Sourced {
  const { readSourced, assertNotBoth } = reader(flags, env);
  assertNotBoth(SETTINGS.store, SETTINGS.storeFile);
  const named = readSourced(SETTINGS.storeFile) ?? readSourced(SETTINGS.store);
  return named ?? { value: SETTINGS.store.default, source: "--store" };
}

/** Returns the server's address and the paths of its TLS files. Throws a UsageError as `readConfig` does. */
export function readAddress(flags: Flags, env: Environment) {
  const { readOr, readSourced } = reader(flags, env);
  const [cert, key] = [readSourced(SETTINGS.tlsCert), readSourced(SETTINGS.tlsKey)];
  assertHasPartner(cert, key, "a key", SETTINGS.tlsKey);
  assertHasPartner(key, cert, "a certificate", SETTINGS.tlsCert);
  return { host: readOr(SETTINGS.host), port: readOr(SETTINGS.port), tls: cert && key && { cert, key } };
}

/** Returns the maximum number of to-dos. Throws a UsageError as `readConfig` does. */
export function readMaxTodos(flags: Flags, env: Environment): number {
  return reader(flags, env).readOr(SETTINGS.maxTodos);
}

/** Returns the flag or the variable that sets a setting; without either, the names of both: `--port or TODO_PORT`. */
export function getSource(setting: Setting, flags: Flags, env: Environment): string {
  const { flag } = setting;
  const names = [...(flag === undefined ? [] : [longName(flag)]), ...getVariables(setting).slice(0, 1)];
  return reader(flags, env).find(setting)?.source ?? names.join(" or ");
}

/** Returns the path of the users file. Throws a UsageError as `readConfig` does. */
export function readUsersFile(flags: Flags, env: Environment): Sourced | undefined {
  return reader(flags, env).readSourced(SETTINGS.usersFile);
}

/** Returns the paths of the configured files with secrets or hashes. */
export function readSecretFiles(flags: Flags, env: Environment): Sourced[] {
  const { adminPasswordFile, storeFile, clientsFile, usersFile, tlsKey } = SETTINGS;
  const settings = [adminPasswordFile, storeFile, clientsFile, usersFile, tlsKey];
  const files = settings.flatMap((setting) => reader(flags, env).find(setting) ?? []);
  const login = { source: "the token of todo login", value: loginFile(env) };
  return existsSync(login.value) ? [...files, login] : files;
}

/**
 * Returns the URL of the service and the token to send, and what names them, for error messages. Throws a UsageError as
 * `readConfig` does.
 */
export function readService(flags: Flags, env: Environment) {
  const { read, readSourced } = reader(flags, env);
  const configured = readSourced(CLIENT_SETTINGS.url);
  const token = read(CLIENT_SETTINGS.token);
  const login = configured !== undefined && token !== undefined ? undefined : readLogin(env);
  const url = configured?.value ?? login?.url ?? CLIENT_SETTINGS.url.default;
  return {
    url,
    urlSource: configured?.source ?? (login && "the URL of todo login"),
    // No other service may receive the stored token.
    token: token ?? (login?.url === url ? login.token : undefined),
    tokenSource: token === undefined ? "the token of todo login" : "the token in TODO_TOKEN",
  };
}

function reader(flags: Flags, env: Environment) {
  assertNoFlagsOfNpm(env);

  /** Returns the text of a setting and the flag or variable that it comes from. An empty variable counts as unset. */
  function find(setting: Setting): Sourced | undefined {
    const { flag } = setting;
    const value = flag === undefined ? undefined : flags[new Option(flag).attributeName()];
    if (flag !== undefined && value !== undefined) return { value: String(value), source: longName(flag) };
    const source = getVariables(setting).find((name) => env[name] && !isKubernetesVariable(name, env[name]));
    return source === undefined ? undefined : { value: env[source] ?? "", source };
  }

  function parse<T>(setting: Setting<T>): { value: T; source: string } | undefined {
    const found = find(setting);
    if (found === undefined) return undefined;
    const { value: text, source } = found;
    const isSecret = setting.flag === undefined;
    const subject = isSecret ? source : `${source} ${JSON.stringify(text)}`;
    return { value: asUsageError(subject, () => setting.parse(text)), source };
  }

  const read = <T>(setting: Setting<T>): T | undefined => parse(setting)?.value;
  const readSourced = (setting: Setting<string>): Sourced | undefined => parse(setting);

  const readOr = <T>(setting: Setting<T> & { readonly default: string }): T =>
    read(setting) ?? setting.parse(setting.default);

  function assertNotBoth(one: Setting, other: Setting): void {
    const [first, second] = [find(one), find(other)];
    if (first === undefined || second === undefined) return;
    throw new UsageError(`${first.source} and ${second.source} are both set: keep one`);
  }

  return { find, read, readOr, readSourced, assertNotBoth };
}

/** Throws a UsageError that names the missing settings if a setting is without its partner. */
function assertHasPartner(
  one: Sourced | undefined,
  partner: Sourced | undefined,
  what: string,
  ...missing: readonly Setting[]
): void {
  if (one === undefined || partner !== undefined) return;
  const names = missing.map((setting) => nameLike(one.source, setting)).join(" or ");
  throw new UsageError(`${one.source} is set without ${what}: set ${names}`);
}

/** Returns the name of a setting of the same form as another name: its flag after a flag, its variable after a variable. */
function nameLike(source: string, setting: Setting): string {
  const { flag } = setting;
  return flag !== undefined && source.startsWith("--") ? longName(flag) : (getVariables(setting)[0] ?? "");
}
