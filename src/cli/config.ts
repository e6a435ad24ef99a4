import { isIPv6 } from "node:net";
import { type Command, Option } from "commander";
import { distance } from "fastest-levenshtein";
import { parseDuration } from "../credential/key.ts";
import { validateRealm } from "../http/auth/basic.ts";
import { validateBlock } from "../http/policy/connection.ts";
import { SERVICE_DEFAULTS } from "../http/service.ts";
import { PRIMARY_DEFAULTS } from "../storage/postgres/primary.ts";
import { DEFAULTS as STORE_DEFAULTS } from "../storage/store.ts";
import { readText } from "./text-file.ts";
import { asUsageError, UsageError } from "./usage-error.ts";

/** Accepts any text. */
const anyText = (text: string): string => text;

interface Setting<Value = unknown> {
  /** The flag in commander's syntax. Secrets have none, because other users can see arguments. */
  readonly flag?: string;
  /** The environment variables; the first one that is set counts. */
  readonly variables: readonly string[];
  readonly default?: string;
  /** Returns the value, or throws an Error that says what is wrong. */
  readonly parse: (text: string) => Value;
  readonly description: string;
}

const DEFAULT_HOST = "127.0.0.1";
const DEFAULT_PORT = "3000";

/** All settings of `todo serve`, some of them shared with other commands. A flag overrides its variable. */
export const SETTINGS = {
  host: {
    flag: "--host <host>",
    variables: ["TODO_HOST"],
    default: DEFAULT_HOST,
    parse: hostName,
    description: "address to listen on",
  },
  port: {
    flag: "--port <port>",
    variables: ["TODO_PORT", "PORT"],
    default: DEFAULT_PORT,
    parse: wholeNumber(0, 65_535),
    description: "port to listen on; 0 selects a free port",
  },
  store: {
    flag: "--store <url>",
    variables: ["TODO_STORE"],
    default: "memory:",
    parse: anyText,
    description: "where the to-dos are stored: memory:, sqlite:PATH or postgres://…",
  },
  storeFile: {
    flag: "--store-file <file>",
    variables: ["TODO_STORE_FILE"],
    parse: fileText,
    description: "file with the store's URL, for URLs that contain a password",
  },
  storeConnections: {
    flag: "--store-connections <n>",
    variables: ["TODO_STORE_CONNECTIONS"],
    default: String(PRIMARY_DEFAULTS.connections),
    parse: wholeNumber(1, 1000),
    description: "maximum PostgreSQL connections, plus one for notifications",
  },
  backupDir: {
    flag: "--backup-dir <folder>",
    variables: ["TODO_BACKUP_DIR"],
    parse: anyText,
    description: "existing folder for scheduled backups of a SQLite store, which are off without it",
  },
  backupEvery: {
    flag: "--backup-every <duration>",
    variables: ["TODO_BACKUP_EVERY"],
    default: "24h",
    parse: interval,
    description: "time between two scheduled backups",
  },
  backupKeep: {
    flag: "--backup-keep <n>",
    variables: ["TODO_BACKUP_KEEP"],
    default: "7",
    parse: wholeNumber(1, 10_000),
    description: "number of scheduled backups to keep; older ones are removed",
  },
  maxTodos: {
    flag: "--max-todos <n>",
    variables: ["TODO_MAX_TODOS"],
    default: String(STORE_DEFAULTS.maxTodos),
    parse: wholeNumber(1, Number.MAX_SAFE_INTEGER),
    description: "maximum number of to-dos",
  },
  maxEvents: {
    flag: "--max-events <n>",
    variables: ["TODO_MAX_EVENTS"],
    default: String(STORE_DEFAULTS.maxEvents),
    parse: wholeNumber(1, 10_000_000),
    description: "number of changes kept for subscribers that reconnect",
  },
  maxRequests: {
    flag: "--max-requests <n>",
    variables: ["TODO_MAX_REQUESTS"],
    default: String(SERVICE_DEFAULTS.maxRequests),
    parse: wholeNumber(1, 10_000_000),
    description: "maximum concurrent requests per path, counted separately for reads and writes",
  },
  maxSubscribers: {
    flag: "--max-subscribers <n>",
    variables: ["TODO_MAX_SUBSCRIBERS"],
    default: String(SERVICE_DEFAULTS.maxSubscribers),
    parse: wholeNumber(1, 10_000_000),
    description: "maximum subscribers of /api/events",
  },
  maxSubscribersPerNetwork: {
    flag: "--max-subscribers-per-network <n>",
    variables: ["TODO_MAX_SUBSCRIBERS_PER_NETWORK"],
    parse: wholeNumber(1, 10_000_000),
    description:
      "maximum subscribers of /api/events from one address (IPv6: one /64), by default a quarter of --max-subscribers",
  },
  stopDelay: {
    flag: "--stop-delay <seconds>",
    variables: ["TODO_STOP_DELAY"],
    default: "0",
    parse: wholeNumber(0, 3600),
    description:
      "seconds to keep serving after the shutdown signal while /readyz fails, so that load balancers notice",
  },
  clientsFile: {
    flag: "--clients-file <file>",
    variables: ["TODO_CLIENTS_FILE"],
    parse: anyText,
    description: "file of bearer tokens, one line name:SHA256-HEX-OF-TOKEN each",
  },
  adminUser: {
    flag: "--admin-user <name>",
    variables: ["TODO_ADMIN_USER"],
    parse: userName,
    description: "name of a single user of /admin/",
  },
  adminPassword: {
    variables: ["TODO_ADMIN_PASSWORD"],
    parse: anyText,
    description: "password of the admin user",
  },
  adminPasswordFile: {
    flag: "--admin-password-file <file>",
    variables: ["TODO_ADMIN_PASSWORD_FILE"],
    parse: fileText,
    description: "file with the password of the admin user",
  },
  usersFile: {
    flag: "--users-file <file>",
    variables: ["TODO_USERS_FILE"],
    parse: anyText,
    description: "users of /admin/ in the format of htpasswd -B, with bcrypt or argon2id hashes",
  },
  authModule: {
    flag: "--auth-module <file>",
    variables: ["TODO_AUTH_MODULE"],
    parse: anyText,
    description: "TypeScript module that exports lookupClient(token) or checkUser(user, password)",
  },
  realm: {
    flag: "--realm <text>",
    variables: ["TODO_REALM"],
    default: SERVICE_DEFAULTS.realm,
    parse: validateRealm,
    description: "realm of /admin/",
  },
  basicFailures: {
    flag: "--basic-failures <n>",
    variables: ["TODO_BASIC_FAILURES"],
    default: String(SERVICE_DEFAULTS.basicFailures),
    parse: wholeNumber(0, Number.MAX_SAFE_INTEGER),
    description: "failed logins in a row, per user and address, before a 429 response; 0 for no limit",
  },
  allowBasicOverHttp: {
    flag: "--allow-basic-over-http",
    variables: ["TODO_ALLOW_BASIC_OVER_HTTP"],
    default: "off",
    parse: onOrOff,
    description: "accept passwords over plain HTTP from other machines and through proxies",
  },
  tlsCert: {
    flag: "--tls-cert <file>",
    variables: ["TODO_TLS_CERT"],
    parse: anyText,
    description: "PEM file with the certificate chain; the server then uses HTTPS",
  },
  tlsKey: {
    flag: "--tls-key <file>",
    variables: ["TODO_TLS_KEY"],
    parse: anyText,
    description: "PEM file with the private key of the certificate",
  },
  trustedProxy: {
    flag: "--trusted-proxy <addresses>",
    variables: ["TODO_TRUSTED_PROXY"],
    default: "",
    parse: (text: string) => list(text).map(validateBlock),
    description: "comma-separated addresses or CIDR blocks of proxies whose forwarding headers are trusted",
  },
  allowedHosts: {
    flag: "--allowed-hosts <names>",
    variables: ["TODO_ALLOWED_HOSTS"],
    default: "",
    parse: (text: string) => list(text).map(hostValue),
    description: "comma-separated Host header values to accept besides the names of loopback",
  },
  corsOrigins: {
    flag: "--cors-origins <origins>",
    variables: ["TODO_CORS_ORIGINS"],
    default: "",
    parse: (text: string) => list(text).map(origin),
    description: "comma-separated origins whose pages may use the API",
  },
  metricsPort: {
    flag: "--metrics-port <port>",
    variables: ["TODO_METRICS_PORT"],
    parse: wholeNumber(0, 65_535),
    description: "port for Prometheus metrics, which are off without it; 0 selects a free port",
  },
  metricsHost: {
    flag: "--metrics-host <host>",
    variables: ["TODO_METRICS_HOST"],
    default: DEFAULT_HOST,
    parse: hostName,
    description: "address for Prometheus metrics",
  },
  logLevel: {
    flag: "--log-level <level>",
    variables: ["TODO_LOG_LEVEL"],
    default: "info",
    parse: oneOf(["debug", "info", "warn", "error", "silent"]),
    description: "debug, info, warn, error or silent",
  },
  accessLog: {
    flag: "--access-log",
    variables: ["TODO_ACCESS_LOG"],
    default: "off",
    parse: onOrOff,
    description: "log each request",
  },
} as const satisfies Record<string, Setting>;

/** The settings of commands that send requests to a running service. */
export const CLIENT_SETTINGS = {
  url: {
    flag: "--url <url>",
    variables: ["TODO_URL"],
    default: `http://${DEFAULT_HOST}:${DEFAULT_PORT}`,
    parse: serviceUrl,
    description: "URL of the service",
  },
  token: { variables: ["TODO_TOKEN"], parse: bearerToken, description: "bearer token of a client" },
} as const satisfies Record<string, Setting>;

const ALL_SETTINGS: readonly Setting[] = [...Object.values(SETTINGS), ...Object.values(CLIENT_SETTINGS)];

/** Returns the option of a setting for commander. */
export function optionFor(setting: Setting & { readonly flag: string }): Option {
  const option = new Option(setting.flag, `${setting.description} (${setting.variables.join(", ")})`);
  if (setting.default) option.description += `, by default ${setting.default}`;
  return option;
}

/** Adds the options of all settings of `todo serve` to a command. */
export function addServeOptions(command: Command): void {
  for (const setting of Object.values(SETTINGS)) {
    if ("flag" in setting) command.addOption(optionFor(setting));
  }
}

/** The values of the flags on the command line, by attribute name, such as `storeFile`. */
export type Flags = Partial<Readonly<Record<string, string | boolean>>>;
export type Environment = Readonly<Record<string, string | undefined>>;

export type Config = ReturnType<typeof readConfig>;

/** The value of a setting, and the flag or variable that it comes from. */
export interface Sourced {
  readonly value: string;
  /** The name to use in error messages, such as `--users-file` or `TODO_USERS_FILE`. */
  readonly source: string;
}

/** Reads and checks all settings of `todo serve`. Throws a UsageError for the first invalid one. */
export function readConfig(flags: Flags, env: Environment) {
  const { read, readOr, readSourced, rejectBoth } = reader(flags, env);
  rejectBoth(SETTINGS.adminPassword, SETTINGS.adminPasswordFile);
  rejectSamePort(flags, env);

  const passwordFile = read(SETTINGS.adminPasswordFile);
  const password = read(SETTINGS.adminPassword);
  const user = read(SETTINGS.adminUser);
  return {
    ...readAddress(flags, env),
    store: readStore(flags, env),
    storeConnections: readOr(SETTINGS.storeConnections),
    backupDir: readSourced(SETTINGS.backupDir),
    backupEvery: readOr(SETTINGS.backupEvery),
    backupKeep: readOr(SETTINGS.backupKeep),
    maxTodos: readMaxTodos(flags, env),
    maxEvents: readOr(SETTINGS.maxEvents),
    maxRequests: readOr(SETTINGS.maxRequests),
    maxSubscribers: readOr(SETTINGS.maxSubscribers),
    maxSubscribersPerNetwork: read(SETTINGS.maxSubscribersPerNetwork),
    stopDelay: readOr(SETTINGS.stopDelay),
    clientsFile: readSourced(SETTINGS.clientsFile),
    fixedPair: fixedPair(user, password ?? passwordFile),
    usersFile: readUsersFile(flags, env),
    authModule: readSourced(SETTINGS.authModule),
    realm: readOr(SETTINGS.realm),
    basicFailures: readOr(SETTINGS.basicFailures),
    allowBasicOverHttp: readOr(SETTINGS.allowBasicOverHttp),
    trustedProxies: readOr(SETTINGS.trustedProxy),
    allowedHosts: readOr(SETTINGS.allowedHosts),
    corsOrigins: readOr(SETTINGS.corsOrigins),
    metricsPort: read(SETTINGS.metricsPort),
    metricsHost: readOr(SETTINGS.metricsHost),
    logLevel: readOr(SETTINGS.logLevel),
    accessLog: readOr(SETTINGS.accessLog),
  };
}

/** Throws a UsageError if the service and its metrics have the same address and port. */
function rejectSamePort(flags: Flags, env: Environment): void {
  const { find, read, readOr } = reader(flags, env);
  const [port, metricsPort] = [readOr(SETTINGS.port), read(SETTINGS.metricsPort)];
  const [host, metricsHost] = [readOr(SETTINGS.host), readOr(SETTINGS.metricsHost)];
  if (port === 0 || port !== metricsPort || host !== metricsHost) return;
  const [source, metricsSource] = [
    find(SETTINGS.port)?.source ?? "--port",
    find(SETTINGS.metricsPort)?.source,
  ];
  throw new UsageError(`${source} and ${metricsSource} are both ${port} on ${host}: set different ports`);
}

/** Returns the URL of the store. Throws a UsageError as `readConfig` does. */
export function readStore(flags: Flags, env: Environment): Sourced {
  const { readSourced, rejectBoth } = reader(flags, env);
  rejectBoth(SETTINGS.store, SETTINGS.storeFile);
  const configured = readSourced(SETTINGS.storeFile) ?? readSourced(SETTINGS.store);
  return configured ?? { value: SETTINGS.store.default, source: "--store" };
}

/** Returns the server's address and the paths of its TLS files. Throws a UsageError as `readConfig` does. */
export function readAddress(flags: Flags, env: Environment) {
  const { readOr, readSourced } = reader(flags, env);
  const [cert, key] = [readSourced(SETTINGS.tlsCert), readSourced(SETTINGS.tlsKey)];
  return { host: readOr(SETTINGS.host), port: readOr(SETTINGS.port), tls: tlsFiles(cert, key) };
}

/** Returns the maximum number of to-dos. Throws a UsageError as `readConfig` does. */
export function readMaxTodos(flags: Flags, env: Environment): number {
  return reader(flags, env).readOr(SETTINGS.maxTodos);
}

/** Returns the path of the users file. Throws a UsageError as `readConfig` does. */
export function readUsersFile(flags: Flags, env: Environment): Sourced | undefined {
  return reader(flags, env).readSourced(SETTINGS.usersFile);
}

/** Returns the paths of the configured files with secrets or hashes, each with its flag or variable. */
export function readSecretFiles(
  flags: Flags,
  env: Environment,
): { readonly source: string; readonly path: string }[] {
  const { find } = reader(flags, env);
  const { adminPasswordFile, storeFile, clientsFile, usersFile, tlsKey } = SETTINGS;
  return [adminPasswordFile, storeFile, clientsFile, usersFile, tlsKey].flatMap((setting) => {
    const found = find(setting);
    return found === undefined ? [] : [{ source: found.source, path: found.text }];
  });
}

/** Returns the URL of the service and the token to send. Throws a UsageError as `readConfig` does. */
export function readService(flags: Flags, env: Environment) {
  const { read, readOr } = reader(flags, env);
  return { url: readOr(CLIENT_SETTINGS.url), token: read(CLIENT_SETTINGS.token) };
}

/** Returns the variables that look like settings, but that Kubernetes sets for a service of its own. */
export function clusterVariables(env: Environment): string[] {
  return Object.keys(env).filter(
    (name) => name.startsWith("TODO_") && isKubernetesVariable(name, env[name] ?? ""),
  );
}

function reader(flags: Flags, env: Environment) {
  rejectFlagsOfNpm(env);
  rejectUnknownVariables(env);

  /** Returns the text of a setting and the flag or variable that it comes from. An empty variable counts as unset. */
  function find({ flag, variables }: Setting): { text: string; source: string } | undefined {
    const value = flag === undefined ? undefined : flags[new Option(flag).attributeName()];
    if (flag !== undefined && value !== undefined) return { text: String(value), source: longName(flag) };
    const source = variables.find((name) => env[name] && !isKubernetesVariable(name, env[name]));
    return source === undefined ? undefined : { text: env[source] ?? "", source };
  }

  function parse<T>(setting: Setting<T>): { value: T; source: string } | undefined {
    const found = find(setting);
    if (found === undefined) return undefined;
    const { text, source } = found;
    const isSecret = setting.flag === undefined;
    const subject = isSecret ? source : `${source} ${JSON.stringify(text)}`;
    return { value: asUsageError(subject, () => setting.parse(text)), source };
  }

  const read = <T>(setting: Setting<T>): T | undefined => parse(setting)?.value;
  const readSourced = (setting: Setting<string>): Sourced | undefined => parse(setting);

  const readOr = <T>(setting: Setting<T> & { readonly default: string }): T =>
    read(setting) ?? setting.parse(setting.default);

  function rejectBoth(one: Setting, other: Setting): void {
    const [first, second] = [find(one), find(other)];
    if (first === undefined || second === undefined) return;
    throw new UsageError(`${first.source} and ${second.source} are both set: keep one`);
  }

  return { find, read, readOr, readSourced, rejectBoth };
}

/** Returns the name of a flag without its value: `--port`. */
const longName = (flag: string): string => flag.replace(/ .*/, "");

const CLUSTER_SERVICE = /_SERVICE_(?:HOST|PORT(?:_.+)?)$/;
const CLUSTER_PORT = /_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/;

/** Kubernetes sets variables in each pod for every service: one named "todo" leads to TODO_PORT=tcp://10.0.0.1:80. */
function isKubernetesVariable(name: string, value: string): boolean {
  if (CLUSTER_SERVICE.test(name)) return true;
  return CLUSTER_PORT.test(name) && (/^(?:tcp|udp|sctp):\/\//.test(value) || /_\d+_/.test(name));
}

/** Variables of the project's own tests. */
const TESTS = /^TODO_TEST_/;

/** npm silently consumes flags that stand before `--`, and passes them on as variables. */
function rejectFlagsOfNpm(env: Environment): void {
  for (const { flag } of ALL_SETTINGS) {
    if (flag === undefined) continue;
    const name = longName(flag);
    if (env[`npm_config_${name.slice(2).replaceAll("-", "_")}`] === undefined) continue;
    throw new UsageError(`npm consumed ${name}: put -- before it, as in npm start -- ${name}`);
  }
}

function rejectUnknownVariables(env: Environment): void {
  const known = ALL_SETTINGS.flatMap(({ variables }) => variables);
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("TODO_") || !value || known.includes(name) || TESTS.test(name)) continue;
    if (isKubernetesVariable(name, value)) continue;
    const nearest = known.toSorted((a, b) => distance(name, a) - distance(name, b))[0];
    throw new UsageError(
      `unknown variable ${name}: did you mean ${nearest}? (npm start -- --help lists all variables)`,
    );
  }
}

function fixedPair(user: string | undefined, password: string | undefined) {
  if (user === undefined && password === undefined) return undefined;
  if (user === undefined) {
    throw new UsageError(
      "an admin password is configured without a user: set --admin-user or TODO_ADMIN_USER",
    );
  }
  if (password === undefined) {
    throw new UsageError(
      "an admin user is configured without a password: set TODO_ADMIN_PASSWORD or TODO_ADMIN_PASSWORD_FILE",
    );
  }
  return { user, password };
}

function tlsFiles(cert: Sourced | undefined, key: Sourced | undefined) {
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined) {
    throw new UsageError("a TLS key is configured without a certificate: set --tls-cert or TODO_TLS_CERT");
  }
  if (key === undefined) {
    throw new UsageError("a TLS certificate is configured without a key: set --tls-key or TODO_TLS_KEY");
  }
  return { cert, key };
}

/** Returns the text of a file that contains one secret, without its last line break. */
function fileText(path: string): string {
  const text = readText(path).replace(/\r?\n$/, "");
  if (text === "") throw new Error("the file is empty");
  return text;
}

function userName(text: string): string {
  if (text.includes(":")) throw new Error("a user name cannot contain a colon (RFC 7617 section 2)");
  return text;
}

function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (!(number >= min && number <= max)) throw new Error(`must be a whole number from ${min} to ${max}`);
    return number;
  };
}

/** Returns a duration in milliseconds. */
function interval(text: string): number {
  const ms = parseDuration("interval", text);
  if (ms === 0) throw new Error("must be longer than 0");
  return ms;
}

function onOrOff(text: string): boolean {
  if (/^(?:1|true|on|yes)$/i.test(text)) return true;
  if (/^(?:0|false|off|no)$/i.test(text)) return false;
  throw new Error("must be on or off");
}

function oneOf<Value extends string>(values: readonly Value[]): (text: string) => Value {
  return (text) => {
    const value = values.find((one) => one === text);
    if (value === undefined) throw new Error(`must be one of ${values.join(", ")}`);
    return value;
  };
}

function list(text: string): string[] {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
}

function serviceUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    url.username + url.password + url.search + url.hash !== ""
  )
    throw new Error("must be the URL of a service, such as https://todo.example.com");
  return url.href.replace(/\/$/, "");
}

function bearerToken(text: string): string {
  if (/^[!-+\--~]+$/.test(text)) return text;
  throw new Error("must be visible ASCII characters without spaces or commas");
}

/** Rejects `*` and other names that cannot be resolved, because the runtime and its resolver would disagree on them. */
function hostName(text: string): string {
  if (/^[\w.-]+$/.test(text) || isIPv6(text.replace(/^\[(.*)\]$/, "$1"))) return text;
  throw new Error(
    "must be a host name or an IP address, such as 127.0.0.1, or 0.0.0.0 for all addresses of this machine",
  );
}

/** Checks a Host header value: a name or an address, with the port unless it is the default of the scheme. */
function hostValue(text: string): string {
  if (!URL.canParse(`http://${text}`) || !/^[^/?#@\s*]+$/.test(text)) {
    throw new Error(`"${text}" is not a Host header value, such as todo.example.com or mybox:3000`);
  }
  return text;
}

/** Checks an origin as browsers send it: scheme, host and port without a path. */
function origin(text: string): string {
  if (!URL.canParse(text) || new URL(text).origin !== text) {
    throw new Error(`"${text}" is not an origin, such as https://app.example.com`);
  }
  return text;
}
