import { BlockList, isIP } from "node:net";
import type { HttpServer } from "../route.ts";
import { isLoopback } from "./loopback.ts";

/** Where a request comes from, and how it traveled. */
export interface ConnectionInfo {
  /** The IP address of the client: that of the connection, or the one that trusted proxies send. */
  readonly address: string;
  /**
   * Whether the request came over TLS, or never left this machine. From a trusted proxy it is true only if every
   * hop says `https`.
   */
  readonly isSecure: boolean;
  /**
   * `used` if a trusted proxy sends `X-Forwarded-For` or `Forwarded`, `ignored` if forwarding headers come from an
   * address that is not trusted, else `none`.
   */
  readonly forwarding: "used" | "ignored" | "none";
}

/** Returns where a request comes from. */
export type GetConnectionInfo = (request: Request, server: HttpServer) => ConnectionInfo;

/** The headers that only proxies send. */
const FORWARDING_HEADERS = /^(?:forwarded|x-forwarded-.*|x-real-ip|via)$/;

/**
 * Reads `X-Forwarded-For` and `X-Forwarded-Proto` when the connection comes from a trusted proxy. An invalid value makes
 * the request less trusted. A request with `Forwarded` (RFC 7239) is attributed to the proxy and is never secure.
 * @param trustedProxies addresses and CIDR blocks. An Error is thrown for any other text.
 */
export function createConnectionInfoReader(trustedProxies: readonly string[]): GetConnectionInfo {
  const trusted = new BlockList();
  for (const block of trustedProxies) addBlock(trusted, block);
  const trustsAny = trustedProxies.length > 0;
  const isTrusted = (address: string): boolean => trusted.check(address, familyOf(address));

  return (request, server) => {
    const { headers } = request;
    const address = server.requestIP(request)?.address ?? "";
    if (trustsAny && isTrusted(address)) {
      // A proxy that writes Forwarded need not overwrite X-Forwarded-*, so these may come from the client.
      if (headers.has("forwarded")) return { address, isSecure: false, forwarding: "used" };
      const hops = headers.get("x-forwarded-for");
      const protocols = headers.get("x-forwarded-proto")?.split(",");
      return {
        address: hops === null ? address : clientAddress(hops, address, isTrusted),
        // The proxy's own connection to this server says nothing about the client's connection to the proxy.
        isSecure: protocols?.every((protocol) => protocol.trim().toLowerCase() === "https") === true,
        forwarding: hops === null ? "none" : "used",
      };
    }
    const isForwarded = hasForwardingHeader(headers);
    return {
      address,
      // A proxy on this machine may have clients anywhere.
      isSecure: server.protocol === "https" || (isLoopback(address) && !isForwarded),
      forwarding: isForwarded ? "ignored" : "none",
    };
  };
}

function hasForwardingHeader(headers: Headers): boolean {
  for (const name of headers.keys()) if (FORWARDING_HEADERS.test(name)) return true;
  return false;
}

/** Returns the text. Throws an Error unless it is an IP address or a CIDR block (RFC 4632, RFC 4291 §2.3). */
export function validateBlock(text: string): string {
  addBlock(new BlockList(), text);
  return text;
}

function addBlock(list: BlockList, text: string): void {
  const [, address = "", prefix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  if (isIP(address) === 0) {
    throw new Error(`"${text}" is not an IP address or a CIDR block such as 10.0.0.0/8`);
  }
  const bits = Number(prefix ?? 32);
  if (prefix === undefined) list.addAddress(address, familyOf(address));
  else if (bits <= (isIP(address) === 4 ? 32 : 128)) list.addSubnet(address, bits, familyOf(address));
  else throw new Error(`"${text}" has a prefix that is longer than the address`);
}

const familyOf = (address: string): "ipv4" | "ipv6" => (isIP(address) === 4 ? "ipv4" : "ipv6");

/**
 * Returns the right-most address of X-Forwarded-For that is not a trusted proxy. The entries to its left may be forged.
 * Stops at the proxy before an invalid entry.
 */
function clientAddress(header: string, nearest: string, isTrusted: (address: string) => boolean): string {
  let client = nearest;
  for (const hop of header.split(",").toReversed()) {
    const address = addressIn(hop.trim());
    if (address === undefined) break;
    client = address;
    if (!isTrusted(address)) break;
  }
  return client;
}

/** Returns the IP address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`. */
function addressIn(node: string): string | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(node)?.[1] ?? /^([\d.]+):\d+$/.exec(node)?.[1] ?? node;
  return isIP(bare) === 0 ? undefined : bare;
}
