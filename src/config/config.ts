import { Option } from "commander";
import { closest } from "fastest-levenshtein";
import { hasReplacement } from "../text.ts";
import { type Environment, quoteValue, type Sourced } from "./setting-values.ts";
import {
  ALL_SETTINGS,
  CLIENT_SETTINGS,
  getVariables,
  longName,
  SETTINGS,
  type Setting,
  type SettingGroup,
  type Values,
} from "./settings.ts";
import { readLogin } from "./stored-login.ts";
import { asUsageError, UsageError } from "./usage-error.ts";

/** The values of the flags on the command line, by attribute name, such as `storeFile`. */
export type Flags = Partial<Readonly<Record<string, string | boolean>>>;

/** The values of the settings of `todo serve`, by group and name. */
export type Config = { readonly [Group in keyof typeof SETTINGS]: Values<(typeof SETTINGS)[Group]> };

/** Reads and checks all settings of `todo serve`. Throws a UsageError for the first invalid one. */
export function readConfig(flags: Flags, env: Environment): Config {
  assertKnownVariables(env);
  const config = readGroups(SETTINGS, flags, env);
  assertTlsPair(flags, env);
  const { adminUser, adminPassword } = SETTINGS.credentials;
  assertHasPartner(adminUser, adminPassword, "a password", flags, env);
  assertHasPartner(adminPassword, adminUser, "a user", flags, env);
  const { folder, every, keep } = SETTINGS.backups;
  for (const one of [every, keep]) assertHasPartner(one, folder, "a folder", flags, env);
  if (config.simulation.faults !== undefined && config.network.trustedProxies.length > 0) {
    const proxies = getSource(SETTINGS.network.trustedProxies, flags, env);
    throw new UsageError(`--simulate works on loopback only, and ${proxies} lets others in: leave one out`);
  }
  return config;
}

/** Returns the paths of the certificate and its key: both or none. Throws a UsageError as `readConfig` does. */
export function readTls(flags: Flags, env: Environment): Config["tls"] {
  assertTlsPair(flags, env);
  return readSettings(SETTINGS.tls, flags, env);
}

function assertTlsPair(flags: Flags, env: Environment): void {
  const { cert, key } = SETTINGS.tls;
  assertHasPartner(cert, key, "a key", flags, env);
  assertHasPartner(key, cert, "a certificate", flags, env);
}

// As for readSettings, only the signature has the mapped type.
function readGroups(groups: typeof SETTINGS, flags: Flags, env: Environment): Config;
function readGroups(groups: Readonly<Record<string, SettingGroup>>, flags: Flags, env: Environment): object {
  return Object.fromEntries(
    Object.entries(groups).map(([name, group]) => [name, readSettings(group, flags, env)]),
  );
}

/** Returns the URL of the store. Throws a UsageError as `readConfig` does. */
export const readStoreUrl = (flags: Flags, env: Environment): Sourced =>
  readSettings({ url: SETTINGS.store.url }, flags, env).url;

/** Returns the values of some settings by their names. Throws a UsageError as `readConfig` does. */
// Only the signature has the mapped type, because TypeScript cannot check it for an object that a loop builds.
export function readSettings<Group extends SettingGroup>(
  settings: Group,
  flags: Flags,
  env: Environment,
): Values<Group>;
export function readSettings(settings: SettingGroup, flags: Flags, env: Environment): object {
  assertNoFlagsOfNpm(env);
  return Object.fromEntries(
    Object.entries(settings).map(([name, setting]) => [name, readSetting(setting, flags, env)]),
  );
}

function readSetting(setting: Setting, flags: Flags, env: Environment): unknown {
  const { file, default: text } = setting;
  const found = find(setting, flags, env);
  const foundFile = file && find(file, flags, env);
  if (found !== undefined && foundFile !== undefined)
    throw new UsageError(`${found.source} and ${foundFile.source} are both set: keep one`);
  if (file !== undefined && foundFile !== undefined)
    return setting.parse(parse(file, foundFile), foundFile.source);
  if (found !== undefined) return parse(setting, found);
  return text === undefined ? undefined : setting.parse(text, getSource(setting, flags, env));
}

function parse<Value>(setting: Setting<Value>, { value: text, source }: Sourced): Value {
  const isSecret = setting.flag === undefined;
  const subject = isSecret ? source : `${source} ${quoteValue(text)}`;
  if (hasReplacement(text)) throw new UsageError(`${source} is not UTF-8: check its encoding`);
  return asUsageError(subject, () => setting.parse(text, source));
}

/** Returns the text of a setting and the flag or variable that it comes from. An empty variable counts as unset. */
function find(setting: Setting, flags: Flags, env: Environment): Sourced | undefined {
  const { flag } = setting;
  const value = flag === undefined ? undefined : flags[new Option(flag).attributeName()];
  if (flag !== undefined && value !== undefined) return { value: String(value), source: longName(flag) };
  const source = getVariables(setting).find((name) => env[name] && !isKubernetesVariable(name, env[name]));
  return source === undefined ? undefined : { value: env[source] ?? "", source };
}

/** Returns the flag or the variable that sets a setting; without either, the names of both: `--port or TODO_PORT`. */
function getSource(setting: Setting, flags: Flags, env: Environment): string {
  const { flag } = setting;
  const names = [...(flag === undefined ? [] : [longName(flag)]), ...getVariables(setting).slice(0, 1)];
  return find(setting, flags, env)?.source ?? names.join(" or ");
}

/**
 * Returns the URL of the service and the token to send, and what names them, for error messages. Throws a UsageError as
 * `readConfig` does.
 */
export function readService(flags: Flags, env: Environment) {
  const { url: named, token } = readSettings(CLIENT_SETTINGS, flags, env);
  const isNamed = find(CLIENT_SETTINGS.url, flags, env) !== undefined;
  const login = isNamed && token !== undefined ? undefined : readLogin(env);
  const url = isNamed ? named.value : (login?.url ?? named.value);
  return {
    url,
    urlSource: isNamed ? named.source : login && "the URL of todo login",
    // No other service may receive the stored token.
    token: token ?? (login?.url === url ? login.token : undefined),
    tokenSource: token === undefined ? "the token of todo login" : "the token in TODO_TOKEN",
  };
}

/** Throws a UsageError that names the missing settings if a setting is without its partner. */
function assertHasPartner(
  one: Setting,
  partner: Setting,
  what: string,
  flags: Flags,
  env: Environment,
): void {
  const findEither = (setting: Setting) =>
    find(setting, flags, env) ?? (setting.file && find(setting.file, flags, env));
  const found = findEither(one);
  if (found === undefined || findEither(partner) !== undefined) return;
  const missing = partner.file === undefined ? [partner] : [partner, partner.file];
  const names = missing.map((setting) => nameLike(found.source, setting)).join(" or ");
  throw new UsageError(`${found.source} is set without ${what}: set ${names}`);
}

/** Returns the name of a setting of the same form as another name: its flag after a flag, its variable after a variable. */
function nameLike(source: string, setting: Setting): string {
  const { flag } = setting;
  return flag !== undefined && source.startsWith("--") ? longName(flag) : (getVariables(setting)[0] ?? "");
}

/** Kubernetes sets variables in each pod for every service: one named "todo" leads to TODO_PORT=tcp://10.0.0.1:80. */
const isKubernetesVariable = (name: string, value: string): boolean =>
  /_SERVICE_(?:HOST|PORT)|_PORT_\d/.test(name) || (name.endsWith("_PORT") && /^\w+:\/\//.test(value));

/** npm silently consumes flags that stand before `--`, and passes them on as variables. */
function assertNoFlagsOfNpm(env: Environment): void {
  for (const { flag } of ALL_SETTINGS) {
    if (flag === undefined) continue;
    const name = longName(flag);
    if (env[`npm_config_${name.slice(2).replaceAll("-", "_")}`] === undefined) continue;
    throw new UsageError(`npm consumed ${name}: put -- before it, as in npm start -- ${name}`);
  }
}

function assertKnownVariables(env: Environment): void {
  const known = ALL_SETTINGS.flatMap(getVariables);
  for (const [name, value] of Object.entries(env)) {
    // The project's own tests have variables with TODO_TEST_.
    if (!/^TODO_(?!TEST_)/.test(name) || !value || known.includes(name)) continue;
    if (isKubernetesVariable(name, value)) continue;
    throw new UsageError(
      `unknown variable ${name}: did you mean ${closest(name, known)}? (npm start -- --help lists all variables)`,
    );
  }
}
