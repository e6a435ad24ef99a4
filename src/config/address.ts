import { lookup } from "node:dns/promises";
import { UsageError } from "./usage-error.ts";

/** Returns the address that reaches the server from this machine, in URL syntax. */
export function reachableHost(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  const bare = host.replace(/^\[(.*)\]$/, "$1");
  if (bare === "::") return "[::1]";
  return bare.includes(":") ? `[${bare}]` : bare;
}

/** Returns the URL, without a path, at which this machine reaches a server that listens on a URL. */
export function reachableUrl(listenerUrl: string): string {
  const { protocol, hostname, host } = new URL(listenerUrl);
  return `${protocol}//${host.replace(hostname, reachableHost(hostname))}`;
}

/** Returns the IP address of the host to listen on. Throws a UsageError if it does not resolve. */
export async function resolveAddress(host: string): Promise<string> {
  try {
    return (await lookup(host.replace(/^\[(.*)\]$/, "$1"))).address;
  } catch {
    throw new UsageError(`host ${host} does not resolve: use 127.0.0.1, 0.0.0.0 or a name of this machine`);
  }
}
