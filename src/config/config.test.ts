import { describe, expect, test } from "bun:test";
import { chmodSync } from "node:fs";
import { join } from "node:path";
import { skipFor } from "../../test/skip.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import { type Flags, readConfig, readService, readStoreUrl } from "./config.ts";
import type { Environment } from "./setting-values.ts";
import { UsageError } from "./usage-error.ts";

const SECRET = "hunter2-canary";

const folder = temporaryFolder();

const file = filesIn(folder);

function complaint(flags: Flags, env: Environment): string {
  try {
    readConfig(flags, env);
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error("readConfig accepted the settings");
}

test("readConfig returns the default of every setting that has one", () => {
  expect(readConfig({}, {})).toEqual({
    address: { host: "127.0.0.1", port: { value: 3000, source: "--port or TODO_PORT" } },
    store: {
      url: { value: "memory:", source: "--store or TODO_STORE" },
      seed: undefined,
      connections: 4,
      maxTodos: 1_000_000,
      maxEvents: 10_000,
    },
    backups: { folder: undefined, every: 24 * 60 * 60 * 1000, keep: 7 },
    limits: { maxRequests: 5000, maxSubscribers: 1000, maxSubscribersPerNetwork: undefined },
    shutdown: { delay: 0 },
    credentials: {
      clientsFile: undefined,
      adminUser: undefined,
      adminPassword: undefined,
      usersFile: undefined,
      authModule: undefined,
    },
    access: { privateMode: false, realm: "todo admin", basicFailures: 100, allowBasicOverHttp: false },
    tls: { cert: undefined, key: undefined },
    network: { trustedProxies: [], allowedHosts: [], corsOrigins: [] },
    metrics: { port: undefined, host: "127.0.0.1" },
    assistants: { mcp: false },
    log: { level: "info", requests: false },
    simulation: { faults: undefined },
  });
});

const DEFAULTS = readConfig({}, {});
const ORIGINS = [
  ...["https://a.example", "http://b.example:8080", "http://[::1]:3000", "capacitor://localhost"],
  ...["ionic://localhost", "tauri://localhost", "chrome-extension://abcdefghijklmnop", "app://a.b:8080"],
];

const port = (value: number, source: string) => ({ "address.port": { value, source } });
const admin = (TODO_ADMIN_USER: string, TODO_ADMIN_PASSWORD: string) => ({
  TODO_ADMIN_USER,
  TODO_ADMIN_PASSWORD,
});
const MAX = 2 ** 53 - 1;

test.each<[what: string, flags: Flags, env: Environment, changes: Readonly<Record<string, unknown>>]>([
  ["a flag", { realm: "r", port: "8080" }, {}, { ...port(8080, "--port"), "access.realm": "r" }],
  ["a variable", {}, { TODO_REALM: "r", PORT: "80" }, { ...port(80, "PORT"), "access.realm": "r" }],
  ["a flag rather than its variable", { port: "1" }, { TODO_PORT: "2", PORT: "3" }, port(1, "--port")],
  ["a flag rather than an invalid variable", { port: "1" }, { TODO_PORT: "x" }, port(1, "--port")],
  ["a switch rather than its variable", { mcp: true }, { TODO_MCP: "off" }, { "assistants.mcp": true }],
  ["TODO_PORT rather than PORT", {}, { TODO_PORT: "2", PORT: "3" }, port(2, "TODO_PORT")],
  ["PORT with an empty TODO_PORT", {}, { TODO_PORT: "", PORT: "3" }, port(3, "PORT")],
  ["PORT with a TODO_PORT of Kubernetes", {}, { TODO_PORT: "tcp://10.0.0.1:80", PORT: "3" }, port(3, "PORT")],
  ["a TODO_PORT that Kubernetes sets as unset", {}, { TODO_PORT: "udp://10.0.0.1:80" }, {}],
  ["empty variables as unset", {}, { TODO_HOST: "", TODO_REALM: "", PORT: "" }, {}],
  ["empty credentials as unset", {}, admin("", ""), {}],
  ["the least port", { port: "0" }, {}, port(0, "--port")],
  ["the greatest port", { port: "65535" }, {}, port(65_535, "--port")],
  ["the least limit", { maxTodos: "1" }, {}, { "store.maxTodos": 1 }],
  ["the greatest limit", {}, { TODO_MAX_TODOS: String(MAX) }, { "store.maxTodos": MAX }],
  ["no limit of failures", {}, { TODO_BASIC_FAILURES: "0" }, { "access.basicFailures": 0 }],
  [
    "a limit without a default",
    { maxSubscribersPerNetwork: "5" },
    {},
    { "limits.maxSubscribersPerNetwork": 5 },
  ],
  ["leading zeros", { port: "00080" }, {}, port(80, "--port")],
  [
    "a user and a password",
    {},
    admin("Zoë", " a:b😀 "),
    { "credentials.adminUser": "Zoë", "credentials.adminPassword": " a:b😀 " },
  ],
  [
    "unchanged paths, each with its flag or variable",
    { usersFile: "u" },
    { TODO_USERS_FILE: "not used", TODO_AUTH_MODULE: "./a.ts" },
    {
      "credentials.usersFile": { value: "u", source: "--users-file" },
      "credentials.authModule": { value: "./a.ts", source: "TODO_AUTH_MODULE" },
    },
  ],
  [
    "a certificate",
    { tlsCert: "c" },
    { TODO_TLS_KEY: "k" },
    { "tls.cert": { value: "c", source: "--tls-cert" }, "tls.key": { value: "k", source: "TODO_TLS_KEY" } },
  ],
  ["a realm with quotes", { realm: 'a "b" \\c' }, {}, { "access.realm": 'a "b" \\c' }],
  ["lists", { allowedHosts: " ü.b ,,c.d:81, " }, {}, { "network.allowedHosts": ["xn--tda.b", "c.d:81"] }],
  ["proxies", { trustedProxy: "10.0.0.0/8, ::1" }, {}, { "network.trustedProxies": ["10.0.0.0/8", "::1"] }],
  ["origins", { corsOrigins: ORIGINS.join(", ") }, {}, { "network.corsOrigins": ORIGINS }],
  ["a log level", {}, { TODO_LOG_LEVEL: "silent" }, { "log.level": "silent" }],
  ["variables of other programs as unset", {}, { TODOS: "1", NODE_ENV: "x", TODO_TEST_POSTGRES: "x" }, {}],
])("readConfig accepts %s", (_what, flags, env, changes) => {
  const expected = new Map<string, object>(Object.entries(DEFAULTS));
  for (const [path, value] of Object.entries(changes)) {
    const [group = "", name = ""] = path.split(".");
    expected.set(group, { ...expected.get(group), [name]: value });
  }
  expect<object>(readConfig(flags, env)).toEqual(Object.fromEntries(expected));
});

test.each([
  [true, ["1", "true", "on", "Yes"]],
  [false, ["0", "FALSE", "off", "no"]],
])("readConfig parses a switch as %p: %j", (on, texts) => {
  for (const text of texts) {
    const { log, access } = readConfig({}, { TODO_ACCESS_LOG: text, TODO_ALLOW_BASIC_OVER_HTTP: text });
    expect([log.requests, access.allowBasicOverHttp]).toEqual([on, on]);
  }
});

test.each(["localhost", "my-box_1.example.com", "0.0.0.0", "::", "[::1]", "::ffff:127.0.0.1"])(
  "readConfig accepts the host %s",
  (host) => {
    expect(readConfig({ host, metricsHost: host }, {})).toMatchObject({
      address: { host },
      metrics: { host },
    });
  },
);

const PORTS = "must be a whole number from 0 to 65535";
const LEVELS = "must be one of info, warn, error, silent";
const REALM = "a realm must be visible ASCII";
const PORT_TEXTS = [
  ...["", "-1", "+1", "65536", "80.5", "1e3", "0x50", " 80", "80 ", "８０", "5abc", "NaN", "9".repeat(17)],
];
const HOSTS = ["", "*", "http://localhost", "a b", "localhost:3000", "fe80::1%eth0"];
const HOST_VALUES = ["https://a.example", "a.example/x", "*.example", "a example", ":80"];
const ORIGIN_TEXTS = [
  ...["https://a.example/", "a.example", "null", "https://A.example", "https://a.example:443", "file://"],
  ...["app://A.example", "App://a.example", "app://a.example/", "app:a.example"],
];
const WILDCARDS = ["*", "https://*.example.com", "https://app.example.com:*"];

/** Flags start with two hyphens; others are variables. */
type Rejected = [source: string, text: string, rule: string, shown?: string];
test.each<Rejected>([
  ...PORT_TEXTS.map((text): Rejected => ["--port", text, PORTS]),
  ["TODO_PORT", "http", PORTS],
  ["PORT", "tcp://10.0.0.1:80", PORTS],
  ["--max-todos", "0", "must be a whole number from 1 to 9007199254740991"],
  ["TODO_MAX_TODOS", "9007199254740992", "must be a whole number from 1 to 9007199254740991"],
  ["TODO_BASIC_FAILURES", "-1", "must be a whole number from 0 to 9007199254740991"],
  ["--backup-every", "0", "must be longer than 0"],
  ["TODO_BACKUP_EVERY", "daily", "must be a duration such as"],
  ["--backup-keep", "0", "must be a whole number from 1 to 10000"],
  ["TODO_ACCESS_LOG", "2", "must be on or off"],
  ["--log-level", "verbose", LEVELS],
  ["TODO_LOG_LEVEL", "INFO", LEVELS],
  ["--realm", "", REALM],
  ["TODO_REALM", "café", REALM],
  ["--admin-user", "a\r", "must be one line without control characters"],
  ["--admin-user", "a:b", "a user name cannot contain a colon (RFC 7617 section 2)"],
  ...HOST_VALUES.map((text): Rejected => ["--allowed-hosts", `b, ${text}`, `"${text}" is not a Host header`]),
  ...ORIGIN_TEXTS.map(
    (text): Rejected => ["TODO_CORS_ORIGINS", `http://b,${text}`, `"${text}" is not an origin`],
  ),
  ...WILDCARDS.map(
    (text): Rejected => ["--cors-origins", text, `"${text}" has a wildcard. List each origin`],
  ),
  ...HOSTS.map((text): Rejected => ["--host", text, "must be a host name or an IP address"]),
  ["--allowed-hosts", "b,u@a", '"…@a" is not a Host header value', "…@a"],
  ["--cors-origins", `app://u:${SECRET}@a`, '"…@a" is not an origin', "…@a"],
  ["TODO_TRUSTED_PROXY", "::1,proxy", '"proxy" is not an IP address or a CIDR block such as 10.0.0.0/8'],
  ["--trusted-proxy", "10.0.0.0/33", '"10.0.0.0/33" has a prefix that is longer than the address'],
])("readConfig rejects %s with %j: %s", (source, text, rule, shown = text) => {
  const flag = source.slice(2).replaceAll(/-(.)/g, (_, letter) => letter.toUpperCase());
  const given = source.startsWith("--") ? complaint({ [flag]: text }, {}) : complaint({}, { [source]: text });
  expect(given).toStartWith(`${source} ${JSON.stringify(shown)}: ${rule}`);
  expect(given).not.toContain(SECRET);
});

const ADMIN = { TODO_ADMIN_USER: "a" };
const BOTH = { ...ADMIN, TODO_ADMIN_PASSWORD: SECRET, TODO_ADMIN_PASSWORD_FILE: file(SECRET) };

const WITHOUT_PASSWORD = "is set without a password: set";

test.each<[flags: Flags, env: Environment, message: string]>([
  [{}, { TODO_PORT: "x", PORT: "80" }, `TODO_PORT "x": ${PORTS}`],
  [{}, { TODO_ADMIN_PASSWORD: `${SECRET}\uFFFD` }, "TODO_ADMIN_PASSWORD is not UTF-8: check its encoding"],
  [{ tlsCert: "c" }, {}, "--tls-cert is set without a key: set --tls-key"],
  [{}, { TODO_BACKUP_EVERY: "1h" }, "TODO_BACKUP_EVERY is set without a folder: set TODO_BACKUP_DIR"],
  [{ tlsKey: "k" }, {}, "--tls-key is set without a certificate: set --tls-cert"],
  [{ adminUser: "a" }, {}, `--admin-user ${WITHOUT_PASSWORD} TODO_ADMIN_PASSWORD or --admin-password-file`],
  [{}, ADMIN, `TODO_ADMIN_USER ${WITHOUT_PASSWORD} TODO_ADMIN_PASSWORD or TODO_ADMIN_PASSWORD_FILE`],
  [{}, { ...ADMIN, TODO_ADMIN_PASSWORD: "" }, `TODO_ADMIN_USER ${WITHOUT_PASSWORD}`],
  [{}, { TODO_ADMIN_PASSWORD: SECRET }, "TODO_ADMIN_PASSWORD is set without a user: set TODO_ADMIN_USER"],
  [{ adminPasswordFile: file(SECRET) }, {}, "--admin-password-file is set without a user: set --admin-user"],
  [{}, { ...ADMIN, TODO_ADMIN_PASSWORD: `${SECRET}\r` }, "TODO_ADMIN_PASSWORD: must be one line"],
  [{}, BOTH, "TODO_ADMIN_PASSWORD and TODO_ADMIN_PASSWORD_FILE are both set: keep one"],
  [{ store: "a" }, { TODO_STORE_FILE: file("b") }, "--store and TODO_STORE_FILE are both set: keep one"],
  [
    { simulate: "errors=1%" },
    { TODO_TRUSTED_PROXY: "::1" },
    "--simulate works on loopback only, and TODO_TRUSTED_PROXY lets others in: leave one out",
  ],
])("readConfig rejects %j with %j: %s", (flags, env, message) => {
  expect(complaint(flags, env)).toStartWith(message);
  expect(complaint(flags, env)).not.toContain(SECRET);
});

test.each<[variable: string, nearest: string]>([
  ["TODO_CLIENT_FILE", "TODO_CLIENTS_FILE"],
  ["TODO_ADMIN_PASWORD", "TODO_ADMIN_PASSWORD"],
  ["TODO_ADMINPASSWORD_FILE", "TODO_ADMIN_PASSWORD_FILE"],
  ["TODO_Port", "TODO_PORT"],
  ["TODO_CORS_ORIGIN", "TODO_CORS_ORIGINS"],
  ["TODO_MAXTODOS", "TODO_MAX_TODOS"],
])("readConfig rejects the unknown variable %s and suggests %s", (variable, nearest) => {
  const message = complaint({}, { [variable]: SECRET });
  expect(message).toStartWith(`unknown variable ${variable}: did you mean ${nearest}? `);
  expect(message).not.toContain(SECRET);
});

test("settings of commands other than serve are read despite variables of other programs, such as TODO_DIR", () => {
  const env = { TODO_DIR: "/home/a/todo", TODO_URL: "http://127.0.0.1:8080", TODO_STORE: "sqlite:a.db" };
  expect(readService({}, env).url).toBe("http://127.0.0.1:8080");
  expect(readStoreUrl({}, env).value).toBe("sqlite:a.db");
});

describe("readConfig reads a password from a file", () => {
  const read = (path: string) =>
    readConfig({ adminPasswordFile: path, adminUser: "a" }, {}).credentials.adminPassword;

  test.each([
    ["without an end of line", "s3cret", "s3cret"],
    ["with an end of line", "s3cret\n", "s3cret"],
    ["with several ends of lines", "s3cret\r\n\r\n", "s3cret"],
    ["with spaces at both ends", " s3 cret \n", " s3 cret "],
  ])("%s", (_what, text, password) => {
    expect(read(file(text))).toBe(password);
  });

  test.each<[what: string, path: string, message: string]>([
    ["that is empty", file(""), "the file is empty"],
    ["with only an empty line", file("\n"), "the file is empty"],
    ["with two lines", file(`${SECRET}\nb\n`), "must be one line without control characters"],
    ["that is missing", join(folder, "missing"), "no such file or folder"],
    ["that is below a file", join(file(""), "behind"), "a part of the path is a file, not a folder"],
  ])("rejects a file %s", (_what, path, message) => {
    expect(complaint({ adminUser: "a" }, { TODO_ADMIN_PASSWORD_FILE: path })).toStartWith(
      `TODO_ADMIN_PASSWORD_FILE "${path}": ${message}`,
    );
  });

  const whyReadable = process.getuid?.() === 0 ? "root may read every file" : undefined;
  test.skipIf(skipFor(whyReadable))("rejects a file without read permission", () => {
    const path = file(SECRET);
    chmodSync(path, 0o000);
    expect(complaint({ adminUser: "a", adminPasswordFile: path }, {})).toBe(
      `--admin-password-file "${path}": permission denied`,
    );
  });
});

test("readConfig reads the URL of the store from a file", () => {
  expect(readConfig({ storeFile: file("memory:\n") }, {}).store.url).toEqual({
    value: "memory:",
    source: "--store-file",
  });
  expect(complaint({ storeFile: folder }, {})).toBe(`--store-file "${folder}": it is a folder, not a file`);
});

const CLUSTERS = {
  TODO_PORT: "tcp://10.0.0.1:80",
  TODO_SERVICE_HOST: "10.0.0.1",
  TODO_SERVICE_PORT: "80",
  TODO_PORT_3000_TCP: "tcp://10.0.0.1:3000",
  TODO_PORT_3000_TCP_ADDR: "10.0.0.1",
  TODO_PORT_3000_TCP_PORT: "3000",
  TODO_PORT_3000_UDP_PROTO: "udp",
  TODO_DB_SERVICE_PORT_HTTP: "80",
  TODO_DB_PORT: "tcp://10.0.0.2:5432",
};

test("readConfig ignores variables of Kubernetes", () => {
  const own = { TODO_HOST: "::1", TODO_REALM: "r", PATH: "/bin", KUBERNETES_SERVICE_HOST: "10.0.0.1" };
  expect(readConfig({}, { ...CLUSTERS, ...own })).toEqual(readConfig({}, own));
});

test.each([
  ["npm_config_store", "--store"],
  ["npm_config_max_todos", "--max-todos"],
  ["npm_config_access_log", "--access-log"],
])("readConfig rejects a flag that npm consumed as %s", (variable, flag) => {
  expect(() => readConfig({}, { [variable]: "x" })).toThrow(`npm consumed ${flag}: put -- before it`);
});
