import { BlockList, isIPv4 } from "node:net";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

// A pattern, because each request on loopback is checked and a BlockList is slower.
const AUTHORITY = String.raw`(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?`;
const HOST = new RegExp(`^${AUTHORITY}$`, "i");
const LOCAL_HOST =
  /^(?:[\w-]+|(?:[\w-]+\.)+(?:local|internal|lan|home\.arpa|localhost)|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-f:.]+(?:%[\w.-]+)?\])(?::\d{1,5})?$/i;
const ORIGIN = new RegExp(`^https?://${AUTHORITY}$`);

/** Returns whether an IP address in any notation is a loopback address (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3). */
export function isLoopback(address: string): boolean {
  // The usual addresses, because private mode checks each request and a BlockList is slower.
  if (address === "127.0.0.1" || address === "::1") return true;
  const mapped = /^::ffff:(.+)$/i.exec(address)?.[1] ?? address;
  return isIPv4(mapped) ? LOOPBACK.check(mapped, "ipv4") : LOOPBACK.check(address, "ipv6");
}

/** Returns whether the value of a Host header names loopback, with or without a port. */
export const isLoopbackHost = (host: string): boolean => HOST.test(host);

/**
 * Returns whether the value of a Host header is an IP address, a name without a dot, or a name below a domain of local
 * networks (RFC 6761, RFC 6762, RFC 8375). Public DNS has no such name, so a site cannot point one to this server.
 */
export const isLocalHost = (host: string): boolean => LOCAL_HOST.test(host);

/** Returns whether an origin is on loopback, over HTTP or HTTPS and on any port. */
export const isLoopbackOrigin = (origin: string): boolean => ORIGIN.test(origin);
