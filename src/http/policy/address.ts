import { BlockList, isIP, isIPv4, isIPv6 } from "node:net";

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

/**
 * Returns the network of one customer in canonical notation: an IPv4 address itself, or the /64 of an IPv6 address
 * (RFC 6177), because a single machine can use every address of its /64.
 */
export function networkPrefix(address: string): string {
  const bare = address.replace(/%.*$/, "").toLowerCase();
  if (!isIPv6(bare)) return bare;
  // The URL parser writes an address in its canonical notation, without dots (RFC 5952).
  const halves = new URL(`http://[${bare}]`).hostname.slice(1, -1).split("::");
  const [first = [], last = []] = halves.map((half) => half.split(":").filter(Boolean));
  const zeros = Array.from({ length: 8 - first.length - last.length }, () => "0");
  const groups = [...first, ...zeros, ...last];
  if (!/^(?:0:){5}ffff:/.test(groups.join(":"))) return `${groups.slice(0, 4).join(":")}::/64`;
  const [high = 0, low = 0] = groups.slice(6).map((group) => Number.parseInt(group, 16));
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join(".");
}

/** Returns the text. Throws an Error unless it is an IP address or a CIDR block (RFC 4632, RFC 4291 §2.3). */
export function validateBlock(text: string): string {
  addBlock(new BlockList(), text);
  return text;
}

/** Returns whether an address is in one of some blocks. Throws an Error as `validateBlock` does. */
export function createBlockCheck(blocks: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const block of blocks) addBlock(list, block);
  return (address) => list.check(address, getFamily(address));
}

function addBlock(list: BlockList, text: string): void {
  const [, address = "", prefix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  if (isIP(address) === 0) {
    throw new Error(`"${text}" is not an IP address or a CIDR block such as 10.0.0.0/8`);
  }
  const bits = Number(prefix ?? 32);
  if (prefix === undefined) list.addAddress(address, getFamily(address));
  else if (bits <= (isIP(address) === 4 ? 32 : 128)) list.addSubnet(address, bits, getFamily(address));
  else throw new Error(`"${text}" has a prefix that is longer than the address`);
}

const getFamily = (address: string): "ipv4" | "ipv6" => (isIP(address) === 4 ? "ipv4" : "ipv6");

/** Returns the IP address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`. */
export function parseAddress(node: string): string | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(node)?.[1] ?? /^([\d.]+):\d+$/.exec(node)?.[1] ?? node;
  return isIP(bare) === 0 ? undefined : bare;
}
