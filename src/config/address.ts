import { lookup } from "node:dns/promises";
import { errorMessage, getErrno } from "../error-message.ts";
import type { ListenOptions } from "../http/listener/listen.ts";
import type { Config } from "./config.ts";
import { CommandError } from "./usage-error.ts";

/** Returns the address that reaches the server from this machine, in URL syntax. */
function reachableHost(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  const bare = host.replace(/^\[(.*)\]$/, "$1");
  if (bare === "::") return "[::1]";
  return bare.includes(":") ? `[${bare}]` : bare;
}

/** Returns the URL, without a path, at which this machine reaches a server with these settings. */
export const localUrl = ({ host, port }: Config["address"], { cert }: Pick<Config["tls"], "cert">): string =>
  `${cert === undefined ? "http" : "https"}://${reachableHost(host)}:${port.value}`;

/** Returns the URL, without a path, at which this machine reaches a server that listens on a URL. */
export function reachableUrl(listenerUrl: string): string {
  const { protocol, hostname, host } = new URL(listenerUrl);
  return `${protocol}//${host.replace(hostname, reachableHost(hostname))}`;
}

/** Returns the IP address of the host to listen on. Throws a CommandError if it does not resolve. */
export async function resolveAddress(host: string): Promise<string> {
  try {
    return (await lookup(host.replace(/^\[(.*)\]$/, "$1"))).address;
  } catch {
    throw new CommandError(`host ${host} does not resolve: use 127.0.0.1, 0.0.0.0 or a name of this machine`);
  }
}

/** Returns in plain words why a server cannot listen. */
export function describeListenError(error: unknown, { host, port }: ListenOptions, source: string): string {
  switch (getErrno(error)) {
    case "EADDRINUSE":
      return `port ${port} on ${host} is in use: stop the other program, or choose another port with ${source}`;
    case "EACCES":
      return `this user may not use port ${port}: choose a port above 1023 with ${source}`;
    case "EADDRNOTAVAIL":
      return `${host} is not an address of this machine`;
    default:
      return `cannot listen on ${host}, port ${port}: ${errorMessage(error)}`;
  }
}
