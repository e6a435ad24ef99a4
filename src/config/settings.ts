import { type Command, Option } from "commander";
import { DEFAULT_ACCESS } from "../http/auth/authenticator.ts";
import { validateRealm } from "../http/auth/one-scheme.ts";
import { DEFAULT_LIMITS } from "../http/limits.ts";
import { LOG_LEVELS } from "../http/observability/log.ts";
import { validateBlock } from "../http/policy/address.ts";
import { parseSimulation } from "../http/simulation.ts";
import { PRIMARY_DEFAULTS, DEFAULTS as STORE_DEFAULTS } from "../storage/store.ts";
import {
  bearerToken,
  fileText,
  hostName,
  hostValue,
  interval,
  list,
  oneOf,
  onOrOff,
  origin,
  plainText,
  serviceUrl,
  sourced,
  userName,
  wholeNumber,
} from "./setting-values.ts";

/** A setting of the program: a flag, its variables, or both. */
export interface Setting<Value = unknown> {
  /** The flag in commander's syntax. Secrets have none, because other users can see arguments. */
  readonly flag?: string;
  /** The environment variables; the first one that is set counts, and none are possible. Default: the flag's name, such as TODO_MAX_TODOS. */
  readonly variables?: readonly string[];
  /** Another setting, which names a file with the text. Only one of the two may be set. */
  readonly file?: Setting<string>;
  readonly default?: string;
  /** Returns the value of a text from a flag or variable, or throws an Error that says what is wrong. */
  readonly parse: (text: string, source: string) => Value;
  readonly description: string;
}

/** Settings by the names of their values. */
export type SettingGroup = Readonly<Record<string, Setting>>;

/** The values of settings. A setting without a default may be unset. */
export type Values<Group extends SettingGroup> = {
  readonly [Name in keyof Group]: Group[Name] extends { readonly default: string }
    ? ReturnType<Group[Name]["parse"]>
    : ReturnType<Group[Name]["parse"]> | undefined;
};

/** Returns a setting without a default. */
const optional = <Value>(flag: string, parse: Setting<Value>["parse"], description: string) => ({
  flag,
  parse,
  description,
});

/** Returns a setting with a default. */
const withDefault = <Value>(
  flag: string,
  parse: Setting<Value>["parse"],
  description: string,
  text: string,
) => ({ ...optional(flag, parse, description), default: text });

/** Returns a setting that is on or off, and off by default. */
const onOff = (flag: string, description: string) => withDefault(flag, onOrOff, description, "off");

/** Returns a setting that names a file or a folder. */
const path = (flag: string, description: string) => optional(flag, sourced(plainText), description);

const DEFAULT_HOST = "127.0.0.1";
const DEFAULT_PORT = "3000";
const DEFAULT_URL = `http://${DEFAULT_HOST}:${DEFAULT_PORT}`;

/** All settings of `todo serve`, some of them shared with other commands. A flag overrides its variable. */
export const SETTINGS = {
  address: {
    host: withDefault("--host <host>", hostName, "address to listen on", DEFAULT_HOST),
    port: {
      flag: "--port <port>",
      variables: ["TODO_PORT", "PORT"],
      default: DEFAULT_PORT,
      parse: sourced(wholeNumber(0, 65_535)),
      description: "port to listen on; 0 selects a free port",
    },
  },
  store: {
    url: {
      flag: "--store <url>",
      default: "memory:",
      parse: sourced(plainText),
      description: "where the to-dos are stored: memory:, sqlite:PATH or postgres://…",
      file: optional(
        "--store-file <file>",
        fileText,
        "file with the store's URL, for URLs that contain a password",
      ),
    },
    seed: path(
      "--seed <file>",
      "file with to-dos for a store that has never held any: lines such as '- [x] title', or an export",
    ),
    connections: {
      flag: "--store-connections <n>",
      default: String(PRIMARY_DEFAULTS.connections),
      parse: wholeNumber(1, 1000),
      description: "maximum PostgreSQL connections, plus one for notifications",
    },
    maxTodos: {
      flag: "--max-todos <n>",
      default: String(STORE_DEFAULTS.maxTodos),
      parse: wholeNumber(1, Number.MAX_SAFE_INTEGER),
      description: "maximum number of to-dos",
    },
    maxEvents: {
      flag: "--max-events <n>",
      default: String(STORE_DEFAULTS.maxEvents),
      parse: wholeNumber(1, 10_000_000),
      description: "number of changes kept for subscribers that reconnect",
    },
  },
  backups: {
    folder: path(
      "--backup-dir <folder>",
      "existing folder for scheduled backups of a SQLite store, which are off without it",
    ),
    every: withDefault("--backup-every <duration>", interval, "time between two scheduled backups", "24h"),
    keep: {
      flag: "--backup-keep <n>",
      default: "7",
      parse: wholeNumber(1, 10_000),
      description: "number of scheduled backups to keep; older ones are removed",
    },
  },
  limits: {
    maxRequests: {
      flag: "--max-requests <n>",
      default: String(DEFAULT_LIMITS.maxRequests),
      parse: wholeNumber(1, 10_000_000),
      description: "maximum concurrent requests per path, counted separately for reads and writes",
    },
    maxSubscribers: {
      flag: "--max-subscribers <n>",
      default: String(DEFAULT_LIMITS.maxSubscribers),
      parse: wholeNumber(1, 10_000_000),
      description: "maximum subscribers of /api/events",
    },
    maxSubscribersPerNetwork: {
      flag: "--max-subscribers-per-network <n>",
      parse: wholeNumber(1, 10_000_000),
      description:
        "maximum subscribers of /api/events from one address (IPv6: one /64), by default a quarter of --max-subscribers",
    },
  },
  shutdown: {
    delay: {
      flag: "--stop-delay <seconds>",
      default: "0",
      parse: wholeNumber(0, 3600),
      description:
        "seconds to keep serving after the shutdown signal while /readyz fails, so that load balancers notice",
    },
  },
  credentials: {
    clientsFile: path(
      "--clients-file <file>",
      "file of bearer tokens, one line name:SHA256-HEX-OF-TOKEN each",
    ),
    adminUser: optional("--admin-user <name>", userName, "name of a single user of /admin/"),
    adminPassword: {
      variables: ["TODO_ADMIN_PASSWORD"],
      parse: plainText,
      description: "password of the admin user",
      file: optional("--admin-password-file <file>", fileText, "file with the password of the admin user"),
    },
    usersFile: path(
      "--users-file <file>",
      "users of /admin/ in the format of htpasswd -B, with bcrypt or argon2id hashes",
    ),
    authModule: path(
      "--auth-module <file>",
      "TypeScript module that exports lookupClient(token) or checkUser(user, password)",
    ),
  },
  access: {
    privateMode: onOff("--private", "require credentials for all data; pages and health checks stay open"),
    realm: withDefault("--realm <text>", validateRealm, "realm of /admin/", DEFAULT_ACCESS.realm),
    basicFailures: {
      flag: "--basic-failures <n>",
      default: String(DEFAULT_ACCESS.basicFailures),
      parse: wholeNumber(0, Number.MAX_SAFE_INTEGER),
      description:
        "failed logins in a row, per user and address, before a 429 response; checks under way count, too; 0 for no limit",
    },
    allowBasicOverHttp: onOff(
      "--allow-basic-over-http",
      "accept passwords, and with --private tokens, over plain HTTP from other machines and through proxies",
    ),
  },
  tls: {
    cert: path("--tls-cert <file>", "PEM file with the certificate chain; the server then uses HTTPS"),
    key: path("--tls-key <file>", "PEM file with the private key of the certificate"),
  },
  network: {
    trustedProxies: {
      flag: "--trusted-proxy <addresses>",
      default: "",
      parse: (text: string) => list(text).map(validateBlock),
      description: "comma-separated addresses or CIDR blocks of proxies whose forwarding headers are trusted",
    },
    allowedHosts: {
      flag: "--allowed-hosts <names>",
      default: "",
      parse: (text: string) => list(text).map(hostValue),
      description:
        "comma-separated Host header values to accept besides loopback's; without a list, a server off loopback also accepts addresses, local names, and any name over its own TLS or from a trusted proxy",
    },
    corsOrigins: {
      flag: "--cors-origins <origins>",
      default: "",
      parse: (text: string) => list(text).map(origin),
      description: "comma-separated origins whose pages may use the API",
    },
  },
  metrics: {
    port: {
      flag: "--metrics-port <port>",
      parse: sourced(wholeNumber(0, 65_535)),
      description: "port for Prometheus metrics, which are off without it; 0 selects a free port",
    },
    host: withDefault("--metrics-host <host>", hostName, "address for Prometheus metrics", DEFAULT_HOST),
  },
  assistants: {
    mcp: onOff("--mcp", "serve assistants at /mcp (Model Context Protocol over Streamable HTTP)"),
  },
  log: {
    level: withDefault(
      "--log-level <level>",
      oneOf(LOG_LEVELS),
      "lowest level to log: info, warn, error or silent",
      "info",
    ),
    requests: onOff("--access-log", "log each request"),
  },
  simulation: {
    faults: {
      flag: "--simulate <faults>",
      variables: [],
      parse: parseSimulation,
      description: "delay and fail requests below /api, on loopback only, such as latency=200ms,errors=10%",
    },
  },
} as const satisfies Readonly<Record<string, SettingGroup>>;

const HEADINGS: Readonly<Record<keyof typeof SETTINGS, string>> = {
  address: "Address",
  store: "Store",
  backups: "Scheduled backups",
  limits: "Limits",
  shutdown: "Shutdown",
  credentials: "Clients and users",
  access: "Access",
  tls: "TLS",
  network: "Proxies and other sites",
  metrics: "Metrics",
  assistants: "Assistants",
  log: "Log",
  simulation: "Tests of clients",
};

/** The settings of commands that send requests to a running service. */
export const CLIENT_SETTINGS = {
  url: withDefault("--url <url>", sourced(serviceUrl), "URL of the service", DEFAULT_URL),
  token: { variables: ["TODO_TOKEN"], parse: bearerToken, description: "bearer token of a client" },
} as const satisfies SettingGroup;

/** Returns the settings of a group, each followed by that of its file. */
const listSettings = (group: SettingGroup): Setting[] =>
  Object.values(group).flatMap((setting) => (setting.file === undefined ? setting : [setting, setting.file]));

const GROUPS: Readonly<Record<string, SettingGroup>> = SETTINGS;

/** The settings of `todo serve` in groups, as the help and the reference show them. */
export const SERVE_SETTING_GROUPS = Object.entries(HEADINGS).map(([name, heading]) => ({
  heading,
  settings: listSettings(GROUPS[name] ?? {}),
}));

export const SERVE_SETTINGS: readonly Setting[] = SERVE_SETTING_GROUPS.flatMap(({ settings }) => settings);
export const ALL_SETTINGS: readonly Setting[] = [...SERVE_SETTINGS, ...listSettings(CLIENT_SETTINGS)];

type FlagSetting = Setting & { readonly flag: string };

/** The option of a setting for commander. */
export class SettingOption extends Option {
  readonly setting: FlagSetting;

  constructor(setting: FlagSetting) {
    const value = setting.default ? `, by default ${setting.default}` : "";
    const variables = getVariables(setting).join(", ") || "no variable";
    super(setting.flag, `${setting.description} (${variables})${value}`);
    this.setting = setting;
  }
}

const hasFlag = (setting: Setting): setting is FlagSetting => setting.flag !== undefined;

/** Adds the options of all settings of `todo serve` to a command, in groups. */
export function addServeOptions(command: Command): void {
  for (const { heading, settings } of SERVE_SETTING_GROUPS) {
    for (const setting of settings.filter(hasFlag))
      command.addOption(new SettingOption(setting).helpGroup(`${heading}:`));
  }
}

/** Returns the environment variables of a setting. */
export const getVariables = ({ flag = "", variables }: Setting): readonly string[] =>
  variables ?? [`TODO_${longName(flag).slice(2).replaceAll("-", "_").toUpperCase()}`];

/** Returns the name of a flag without its value: `--port`. */
export const longName = (flag: string): string => flag.replace(/ .*/, "");
