import { reachableUrl } from "../config/address.ts";
import type { Config } from "../config/config.ts";
import type { ConfiguredCredentials } from "./credentials.ts";
import { type Reachability, whereToOpen } from "./first-key.ts";

/** The settings and credentials that decide what a start prints on a terminal. */
export interface StartSubject extends Pick<ConfiguredCredentials, "demo" | "hasUsers">, Reachability {
  readonly access: Pick<Config["access"], "privateMode" | "allowBasicOverHttp">;
}

/** Returns the addresses of the pages, each in one line. Leaves out pages that would reject every request. */
export function describeAddresses(listenerUrl: string, subject: StartSubject): string {
  const { protocol, hostname } = new URL(listenerUrl);
  const url = reachableUrl(listenerUrl);
  // The server accepts passwords over TLS and from this machine only.
  const acceptsPasswords =
    protocol === "https:" ||
    subject.onLoopback ||
    subject.access.allowBasicOverHttp ||
    new URL(url).hostname !== hostname;
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

/** Returns what valid settings put at risk, or whom they shut out; `undefined` if that is nothing. */
export function describeRisk({ access, tls, network }: Config, onLoopback: boolean): string | undefined {
  if (access.allowBasicOverHttp)
    return `${access.privateMode ? "passwords and tokens" : "passwords"} are accepted over plain HTTP (TODO_ALLOW_BASIC_OVER_HTTP), where others can read them`;
  if (onLoopback || tls.cert !== undefined || network.trustedProxies.length > 0) return undefined;
  const [surface, secrets] = access.privateMode ? ["the service", "credentials"] : ["/admin/", "passwords"];
  return `${surface} accepts requests from this machine only, because ${secrets} would be sent over plain HTTP: set --tls-cert and --tls-key, or --trusted-proxy if a proxy is in front`;
}
