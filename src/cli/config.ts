import { isIPv6 } from "node:net";
import { Option } from "commander";
import { distance } from "fastest-levenshtein";
import { checkedRealm } from "../http/admin.ts";
import { checkedBlock } from "../http/remote.ts";
import { readText } from "./text-file.ts";

/** What is wrong with how the command was called, in one line that says what to do; it ends with exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Setting {
  /** As commander reads it; a setting that holds a secret has none, for arguments are seen by all. */
  readonly flag?: string;
  /** The environment variables it can come from, the first that is set. */
  readonly variables: readonly string[];
  readonly default?: string;
  readonly about: string;
}

/** Every setting of `todo serve`, some of them of other commands too: flag, variable, default and meaning. A flag wins over its variable. */
export const SETTINGS = {
  host: {
    flag: "--host <host>",
    variables: ["TODO_HOST"],
    default: "127.0.0.1",
    about: "address to listen on",
  },
  port: {
    flag: "--port <port>",
    variables: ["TODO_PORT", "PORT"],
    default: "3000",
    about: "port to listen on; 0 takes a free one",
  },
  store: {
    flag: "--store <url>",
    variables: ["TODO_STORE"],
    default: "memory:",
    about: "where the to-dos are kept: memory:, sqlite:PATH or postgres://…",
  },
  storeFile: {
    flag: "--store-file <file>",
    variables: ["TODO_STORE_FILE"],
    about: "file that holds the store's URL, for one with a password in it",
  },
  storeConnections: {
    flag: "--store-connections <n>",
    variables: ["TODO_STORE_CONNECTIONS"],
    default: "4",
    about: "connections to the database at most, besides one that listens",
  },
  maxTodos: {
    flag: "--max-todos <n>",
    variables: ["TODO_MAX_TODOS"],
    default: "1000000",
    about: "how many to-dos are held at most",
  },
  maxEvents: {
    flag: "--max-events <n>",
    variables: ["TODO_MAX_EVENTS"],
    default: "10000",
    about: "how many changes are kept to be told again",
  },
  maxRequests: {
    flag: "--max-requests <n>",
    variables: ["TODO_MAX_REQUESTS"],
    default: "5000",
    about: "how many requests may wait for their answer, of each path, readers and writers apart",
  },
  maxSubscribers: {
    flag: "--max-subscribers <n>",
    variables: ["TODO_MAX_SUBSCRIBERS"],
    default: "1000",
    about: "how many readers of /api/events there may be",
  },
  stopDelay: {
    flag: "--stop-delay <seconds>",
    variables: ["TODO_STOP_DELAY"],
    default: "0",
    about: "how long a server that is told to stop goes on serving, not ready, so that balancers notice",
  },
  clientsFile: {
    flag: "--clients-file <file>",
    variables: ["TODO_CLIENTS_FILE"],
    about: "a line name:SHA256-HEX-OF-TOKEN for each bearer token",
  },
  adminUser: {
    flag: "--admin-user <name>",
    variables: ["TODO_ADMIN_USER"],
    about: "the one user of /admin/",
  },
  adminPassword: { variables: ["TODO_ADMIN_PASSWORD"], about: "that user's password" },
  adminPasswordFile: {
    flag: "--admin-password-file <file>",
    variables: ["TODO_ADMIN_PASSWORD_FILE"],
    about: "file that holds that user's password",
  },
  usersFile: {
    flag: "--users-file <file>",
    variables: ["TODO_USERS_FILE"],
    about: "the users of /admin/, as htpasswd -B writes them; bcrypt or argon2id",
  },
  authModule: {
    flag: "--auth-module <file>",
    variables: ["TODO_AUTH_MODULE"],
    about: "TypeScript module that exports lookupClient(token) or checkUser(user, password)",
  },
  realm: {
    flag: "--realm <text>",
    variables: ["TODO_REALM"],
    default: "todo admin",
    about: "realm of /admin/",
  },
  basicFailures: {
    flag: "--basic-failures <n>",
    variables: ["TODO_BASIC_FAILURES"],
    default: "100",
    about: "wrong passwords in a row, for a user from an address, before it must wait; 0 for no limit",
  },
  allowBasicOverHttp: {
    flag: "--allow-basic-over-http",
    variables: ["TODO_ALLOW_BASIC_OVER_HTTP"],
    default: "off",
    about: "take passwords in clear from other machines, and through proxies",
  },
  tlsCert: {
    flag: "--tls-cert <file>",
    variables: ["TODO_TLS_CERT"],
    about: "PEM file with the certificate, and those that lead to an authority: serves HTTPS",
  },
  tlsKey: {
    flag: "--tls-key <file>",
    variables: ["TODO_TLS_KEY"],
    about: "PEM file with the certificate's private key",
  },
  trustedProxy: {
    flag: "--trusted-proxy <addresses>",
    variables: ["TODO_TRUSTED_PROXY"],
    default: "",
    about:
      "addresses or blocks (10.0.0.0/8) of proxies to be believed who their client is, with commas between",
  },
  allowedHosts: {
    flag: "--allowed-hosts <names>",
    variables: ["TODO_ALLOWED_HOSTS"],
    default: "",
    about: "values of the Host header to answer for besides loopback's names, with commas between",
  },
  corsOrigins: {
    flag: "--cors-origins <origins>",
    variables: ["TODO_CORS_ORIGINS"],
    default: "",
    about: "origins whose pages may use it, with commas between",
  },
  metricsPort: {
    flag: "--metrics-port <port>",
    variables: ["TODO_METRICS_PORT"],
    about: "port to serve Prometheus metrics on; 0 takes a free one, without it there are none",
  },
  metricsHost: {
    flag: "--metrics-host <host>",
    variables: ["TODO_METRICS_HOST"],
    default: "127.0.0.1",
    about: "address to serve metrics on",
  },
  logLevel: {
    flag: "--log-level <level>",
    variables: ["TODO_LOG_LEVEL"],
    default: "info",
    about: "debug, info, warn, error or silent",
  },
  accessLog: {
    flag: "--access-log",
    variables: ["TODO_ACCESS_LOG"],
    default: "off",
    about: "log each request",
  },
} as const satisfies Record<string, Setting>;

/** The settings of the commands that ask a running service. */
export const CLIENT_SETTINGS = {
  url: {
    flag: "--url <url>",
    variables: ["TODO_URL"],
    default: "http://127.0.0.1:3000",
    about: "where the service is",
  },
  token: { variables: ["TODO_TOKEN"], about: "a client's bearer token" },
} as const satisfies Record<string, Setting>;

const ALL_SETTINGS = { ...SETTINGS, ...CLIENT_SETTINGS };

type SettingName = keyof typeof ALL_SETTINGS;

/** The flag of a setting, as commander takes it. */
export function optionFor(setting: Setting & { readonly flag: string }): Option {
  const option = new Option(setting.flag, `${setting.about} (${setting.variables.join(", ")})`);
  if (setting.default) option.description += `, by default ${setting.default}`;
  return option;
}

/** What the flags of the command line hold, by setting. */
export type Flags = Partial<Readonly<Record<string, string | boolean>>>;
export type Environment = Readonly<Record<string, string | undefined>>;

export type Config = ReturnType<typeof readConfig>;

/** Reads and checks all settings; throws a UsageError for the first bad one. */
export function readConfig(flags: Flags, env: Environment) {
  const { read, readOr, refuseBoth } = reader(flags, env);
  refuseUnknownVariables(env);
  refuseBoth("adminPassword", "adminPasswordFile");

  const passwordFile = read("adminPasswordFile", fileText);
  const password = read("adminPassword", (text) => text);
  const user = read("adminUser", userName);
  return {
    ...readAddress(flags, env),
    store: readStore(flags, env),
    storeConnections: readOr("storeConnections", wholeNumber(1, 1000)),
    maxTodos: readMaxTodos(flags, env),
    maxEvents: readOr("maxEvents", wholeNumber(1, 10_000_000)),
    maxRequests: readOr("maxRequests", wholeNumber(1, 10_000_000)),
    maxSubscribers: readOr("maxSubscribers", wholeNumber(1, 10_000_000)),
    stopDelay: readOr("stopDelay", wholeNumber(0, 3600)),
    clientsFile: read("clientsFile", (text) => text),
    fixedPair: fixedPair(user, password ?? passwordFile),
    usersFile: readUsersFile(flags, env),
    authModule: read("authModule", (text) => text),
    realm: readOr("realm", checkedRealm),
    basicFailures: readOr("basicFailures", wholeNumber(0, Number.MAX_SAFE_INTEGER)),
    allowBasicOverHttp: readOr("allowBasicOverHttp", onOrOff),
    trustedProxies: readOr("trustedProxy", (text) => list(text).map(checkedBlock)),
    allowedHosts: readOr("allowedHosts", (text) => list(text).map(hostValue)),
    corsOrigins: readOr("corsOrigins", (text) => list(text).map(origin)),
    metricsPort: read("metricsPort", wholeNumber(0, 65_535)),
    metricsHost: readOr("metricsHost", hostName),
    logLevel: readOr("logLevel", oneOf(["debug", "info", "warn", "error", "silent"])),
    accessLog: readOr("accessLog", onOrOff),
  };
}

/** Reads the URL of the store; throws a UsageError as readConfig does. */
export function readStore(flags: Flags, env: Environment): string {
  const { read, readOr, refuseBoth } = reader(flags, env);
  refuseUnknownVariables(env);
  refuseBoth("store", "storeFile");
  return read("storeFile", fileText) ?? readOr("store", (text) => text);
}

/** Reads where the server listens, and whether over TLS; throws a UsageError as readConfig does. */
export function readAddress(flags: Flags, env: Environment) {
  refuseUnknownVariables(env);
  const { read, readOr } = reader(flags, env);
  const cert = read("tlsCert", (text) => text);
  const key = read("tlsKey", (text) => text);
  return {
    host: readOr("host", hostName),
    port: readOr("port", wholeNumber(0, 65_535)),
    tls: tlsFiles(cert, key),
  };
}

/** Reads how many to-dos a store holds at most; throws a UsageError as readConfig does. */
export function readMaxTodos(flags: Flags, env: Environment): number {
  refuseUnknownVariables(env);
  return reader(flags, env).readOr("maxTodos", wholeNumber(1, Number.MAX_SAFE_INTEGER));
}

/** Reads the path of the users file; throws a UsageError as readConfig does. */
export function readUsersFile(flags: Flags, env: Environment): string | undefined {
  refuseUnknownVariables(env);
  return reader(flags, env).read("usersFile", (text) => text);
}

/** Reads where the service is, and the token for it; throws a UsageError as readConfig does. */
export function readService(flags: Flags, env: Environment) {
  const { read, readOr } = reader(flags, env);
  refuseUnknownVariables(env);
  return { url: readOr("url", serviceUrl), token: read("token", bearerToken) };
}

/** The variables that look like settings but were put there by a cluster for a service of its own. */
export function clusterVariables(env: Environment): string[] {
  return Object.keys(env).filter((name) => name.startsWith("TODO_") && isClusters(name, env[name] ?? ""));
}

function reader(flags: Flags, env: Environment) {
  /** What was given for a setting, and where; an empty variable is none. */
  function given(name: SettingName): { text: string; source: string } | undefined {
    const setting: Setting = ALL_SETTINGS[name];
    const flag = flags[name];
    if (flag !== undefined) return { text: String(flag), source: setting.flag?.split(" ")[0] ?? name };
    const source = setting.variables.find(
      (variable) => env[variable] && !isClusters(variable, env[variable]),
    );
    return source === undefined ? undefined : { text: env[source] ?? "", source };
  }

  function read<T>(name: SettingName, parse: (text: string) => T): T | undefined {
    const found = given(name);
    if (found === undefined) return undefined;
    try {
      return parse(found.text);
    } catch (error) {
      const shown = name === "adminPassword" || name === "token" ? "" : ` ${JSON.stringify(found.text)}`;
      throw new UsageError(`${found.source}${shown}: ${error instanceof Error ? error.message : error}`);
    }
  }

  function readOr<T>(name: Exclude<SettingName, WithoutDefault>, parse: (text: string) => T): T {
    return read(name, parse) ?? parse(ALL_SETTINGS[name].default);
  }

  function refuseBoth(one: SettingName, other: SettingName): void {
    const [found, second] = [given(one), given(other)];
    if (found === undefined || second === undefined) return;
    throw new UsageError(`${found.source} and ${second.source} are both set: keep one`);
  }

  return { read, readOr, refuseBoth };
}

type WithoutDefault = {
  [Name in SettingName]: (typeof ALL_SETTINGS)[Name] extends { default: string } ? never : Name;
}[SettingName];

const CLUSTER_SERVICE = /_SERVICE_(?:HOST|PORT(?:_.+)?)$/;
const CLUSTER_PORT = /_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/;

/** Kubernetes tells each pod of every service: one named "todo" brings TODO_PORT=tcp://10.0.0.1:80. */
function isClusters(name: string, value: string): boolean {
  if (CLUSTER_SERVICE.test(name)) return true;
  return CLUSTER_PORT.test(name) && (/^(?:tcp|udp|sctp):\/\//.test(value) || /_\d+_/.test(name));
}

/** Variables of the project's own tests. */
const TESTS = /^TODO_TEST_/;

/** npm keeps flags that stand before a `--` for itself, and says nothing. */
function refuseFlagsOfNpm(env: Environment): void {
  const flags = Object.values(ALL_SETTINGS).flatMap((setting) => ("flag" in setting ? [setting.flag] : []));
  for (const flag of flags) {
    const name = flag.split(" ")[0]?.slice(2) ?? "";
    if (env[`npm_config_${name.replaceAll("-", "_")}`] === undefined) continue;
    throw new UsageError(
      `npm has kept --${name} for itself: put a -- before it, as in npm start -- --${name}`,
    );
  }
}

function refuseUnknownVariables(env: Environment): void {
  refuseFlagsOfNpm(env);
  const known: readonly string[] = Object.values(ALL_SETTINGS).flatMap(({ variables }) => [...variables]);
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("TODO_") || !value || known.includes(name) || TESTS.test(name)) continue;
    if (isClusters(name, value)) continue;
    const nearest = known.toSorted((a, b) => distance(name, a) - distance(name, b))[0];
    throw new UsageError(
      `the variable ${name} is not known: did you mean ${nearest}? (npm start -- --help lists all)`,
    );
  }
}

function fixedPair(user: string | undefined, password: string | undefined) {
  if (user === undefined && password === undefined) return undefined;
  if (user === undefined)
    throw new UsageError("there is an admin password but no user: set TODO_ADMIN_USER too");
  if (password === undefined) {
    throw new UsageError(
      "there is an admin user but no password: set TODO_ADMIN_PASSWORD or TODO_ADMIN_PASSWORD_FILE",
    );
  }
  return { user, password };
}

function tlsFiles(cert: string | undefined, key: string | undefined) {
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined)
    throw new UsageError("there is a TLS key but no certificate: set TODO_TLS_CERT too");
  if (key === undefined) throw new UsageError("there is a TLS certificate but no key: set TODO_TLS_KEY too");
  return { cert, key };
}

/** The text of a file that holds one secret, without its last line break. */
function fileText(path: string): string {
  const text = readText(path).replace(/\r?\n$/, "");
  if (text === "") throw new Error("the file is empty");
  return text;
}

function userName(text: string): string {
  if (text.includes(":")) throw new Error("a user name cannot have a colon (RFC 7617)");
  return text;
}

function wholeNumber(least: number, most: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (!(number >= least && number <= most))
      throw new Error(`must be a whole number from ${least} to ${most}`);
    return number;
  };
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
    throw new Error("is not the URL of a service, such as https://todo.example.com");
  return url.href.replace(/\/$/, "");
}

function bearerToken(text: string): string {
  if (/^[!-+\--~]+$/.test(text)) return text;
  throw new Error("must be visible ASCII characters without blanks or commas");
}

/** What can be looked up; `*` would be taken for every address by the runtime, and for another by its resolver. */
function hostName(text: string): string {
  if (/^[\w.-]+$/.test(text) || isIPv6(text.replace(/^\[(.*)\]$/, "$1"))) return text;
  throw new Error("must be a name or an address, such as 127.0.0.1, or 0.0.0.0 for all of this machine's");
}

/** A Host as clients send it: a name or an address, with the port where it is not the scheme's own. */
function hostValue(text: string): string {
  if (!URL.canParse(`http://${text}`) || !/^[^/?#@\s*]+$/.test(text)) {
    throw new Error(`"${text}" is not a Host, such as todo.example.com or mybox:3000`);
  }
  return text;
}

/** An origin as browsers send it: scheme, host and port, nothing behind. */
function origin(text: string): string {
  if (!URL.canParse(text) || new URL(text).origin !== text) {
    throw new Error(`"${text}" is not an origin, such as https://app.example.com`);
  }
  return text;
}
