import { reachableUrl } from "../config/address.ts";
import type { Config } from "../config/config.ts";
import { UsageError } from "../config/usage-error.ts";
import { createKey, type KeyStore } from "../credential/key.ts";
import { isEasyToGuess } from "../credential/user.ts";
import type { ConfiguredCredentials } from "./credentials.ts";

/** The settings and credentials that decide what a start prints on a terminal. */
export interface StartSubject extends Pick<ConfiguredCredentials, "demo" | "hasUsers"> {
  readonly access: Pick<Config["access"], "privateMode" | "allowBasicOverHttp">;
  /** Whether the server listens on loopback only. */
  readonly onLoopback: boolean;
}

/** Returns the address of a listener for browsers on this machine, and who may send credentials to it. */
function describeListener(listenerUrl: string, { onLoopback, access }: StartSubject) {
  const { protocol, hostname } = new URL(listenerUrl);
  const url = reachableUrl(listenerUrl);
  const acceptsOthers = protocol === "https:" || access.allowBasicOverHttp;
  const isOnAll = new URL(url).hostname !== hostname;
  return { url, acceptsOthers, isOnAll, acceptsPasswords: acceptsOthers || onLoopback || isOnAll };
}

/** Returns where to open the list. Without TLS, the server accepts the key over loopback only. */
export function whereToOpen(listenerUrl: string, subject: StartSubject): string {
  const { url, acceptsOthers, isOnAll, acceptsPasswords } = describeListener(listenerUrl, subject);
  if (isOnAll)
    return `Open ${url} in a browser on this machine.${acceptsOthers ? "" : " Other machines need HTTPS."}`;
  if (acceptsPasswords) return `Open ${url} in a browser.`;
  return "To open the list in a browser, set --tls-cert and --tls-key, or use a proxy that terminates TLS.";
}

/** Returns the addresses of the pages, each in one line. Leaves out pages that would reject every request. */
export function describeAddresses(listenerUrl: string, subject: StartSubject): string {
  const { url, acceptsPasswords } = describeListener(listenerUrl, subject);
  if (subject.access.privateMode && !acceptsPasswords) return `${whereToOpen(listenerUrl, subject)}\n`;
  const lines = [`To-dos:    ${url}/`, `API docs:  ${url}/docs`];
  const how = subject.demo && `  (user ${subject.demo.user}, with the password below)`;
  if (subject.hasUsers && acceptsPasswords) lines.push(`API keys:  ${url}/admin/keys${how ?? ""}`);
  return `${lines.join("\n")}\n`;
}

/** Returns a warning for a store that loses its data when the server stops, or an empty text. */
export const describeMemory = (storeUrl: string): string =>
  storeUrl === "memory:"
    ? "The data and the signed-in browsers are in memory and end with the server. To keep them, add --store sqlite:todos.db\n"
    : "";

/** Returns the generated credentials, and commands that use them. */
export function describeDemo(
  { token, user, password }: NonNullable<StartSubject["demo"]>,
  url: string,
): string {
  return `
No credentials are configured. These work until the server stops:

demo-token=${token}
demo-password=${password}

curl -w '\\n' -H 'Authorization: Bearer ${token}' '${url}/api/whoami'
curl -w '\\n' -u '${user}:${password}' '${url}/admin/'

`;
}

/** Returns the warnings of a start: which requests the server rejects, and what valid settings put at risk. */
export function listWarnings(
  { hasClients, hasUsers, demo }: Pick<ConfiguredCredentials, "hasClients" | "hasUsers" | "demo">,
  config: Config,
  onLoopback: boolean,
): string[] {
  const { adminUser, adminPassword } = config.credentials;
  const warnings: string[] = [];
  if (!hasClients) warnings.push("no client is configured: /api/whoami rejects every request");
  if (!hasUsers)
    warnings.push(
      "no user is configured: /admin/ rejects every request until you run todo users add and set --users-file",
    );
  if (adminUser !== undefined && adminPassword !== undefined && isEasyToGuess(adminUser, adminPassword))
    warnings.push(
      "the password of the admin user is easy to guess: use at least 8 characters, and not the name",
    );
  const risk = describeRisk(config, onLoopback);
  if (risk !== undefined) warnings.push(risk);
  if (demo !== undefined && config.store.url.value.startsWith("postgres"))
    warnings.push(
      "each replica generates its own credentials, and rejects those of the others: create an API key with todo keys create, or set TODO_CLIENTS_FILE and TODO_USERS_FILE",
    );
  return warnings;
}

/** Returns what valid settings put at risk, or whom they shut out; `undefined` if that is nothing. */
function describeRisk({ access, tls, network }: Config, onLoopback: boolean): string | undefined {
  if (access.allowBasicOverHttp)
    return `${access.privateMode ? "passwords and tokens" : "passwords"} are accepted over plain HTTP (TODO_ALLOW_BASIC_OVER_HTTP), where others can read them`;
  if (onLoopback || tls.cert !== undefined || network.trustedProxies.length > 0) return undefined;
  const [surface, secrets] = access.privateMode ? ["the service", "credentials"] : ["/admin/", "passwords"];
  return `${surface} accepts requests from this machine only, because ${secrets} would be sent over plain HTTP: set --tls-cert and --tls-key, or --trusted-proxy if a proxy is in front`;
}

/** The name of the API key that a private server creates at its first start. */
const NAME = "first";

/**
 * Asks on a terminal whether to create the first API key. Otherwise throws a UsageError, because private mode without
 * credentials would reject every request, and the demo's would be unknown to its users.
 */
export function confirmFirstKey({ store }: Config): void {
  const question = `No credentials exist, and private mode needs one. Create an API key named "${NAME}"?`;
  if (process.stdin.isTTY && process.stdout.isTTY && confirm(question)) return;
  const [first, option] =
    store.url.value === "memory:"
      ? ["store the to-dos with --store sqlite:FILE and create", " --store sqlite:FILE."]
      : ["create", ", with the same store."];
  throw new UsageError(
    `private mode has no valid credentials: ${first} an API key with: todo keys create NAME${option} Or create a user with: todo users add NAME --users-file FILE, and start with --users-file FILE`,
  );
}

/**
 * Creates the first API key and prints its token once, on standard error, because secrets do not belong in the log.
 * @param advice says where to open the list
 */
export async function showFirstKey(keys: KeyStore, advice: string): Promise<void> {
  const minted = await createKey(keys, NAME, undefined, Date.now());
  if (minted === undefined) throw new Error(`an API key named ${NAME} was created meanwhile`);
  process.stderr.write(`
The token of the API key ${minted.key.id} (${minted.key.name}) is shown only once:

${minted.token}

${advice} Sign in with the token.

`);
}
