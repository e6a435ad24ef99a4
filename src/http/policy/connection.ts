import { BlockList, isIP } from "node:net";
import type { HttpServer } from "../route.ts";
import { isLoopback } from "./loopback.ts";

/** Where a request comes from, and how it traveled. */
export interface ConnectionInfo {
  /** The IP address of the client: the connection's own, or what trusted proxies say. */
  readonly address: string;
  /**
   * Whether the request came over TLS, or never left this machine. From a trusted proxy it is true only if every
   * hop says `https`.
   */
  readonly isSecure: boolean;
  /**
   * `used` if a trusted proxy names the client, `ignored` if forwarding headers come from an address that is not
   * trusted, else `none`.
   */
  readonly forwarding: "used" | "ignored" | "none";
}

/** Returns where a request comes from. */
export type GetConnectionInfo = (request: Request, server: HttpServer) => ConnectionInfo;

/** The headers that only proxies send. */
const FORWARDING_HEADERS = /^(?:forwarded|x-forwarded-.*|x-real-ip|via)$/;

/**
 * Believes `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded` (RFC 7239) when the connection comes from a
 * trusted proxy, and nobody else's. What is garbled, or contradicts itself, counts as the less trustworthy.
 * @param trustedProxies addresses and CIDR blocks; throws an Error for what is neither
 */
export function createConnectionInfoReader(trustedProxies: readonly string[]): GetConnectionInfo {
  const trusted = new BlockList();
  for (const block of trustedProxies) addBlock(trusted, block);
  const trustsAny = trustedProxies.length > 0;
  const isTrusted = (address: string): boolean => trusted.check(address, familyOf(address));

  return (request, server) => {
    const address = server.requestIP(request)?.address ?? "";
    if (trustsAny && isTrusted(address)) {
      const said = readForwarded(request.headers, address, isTrusted);
      return {
        address: said.address ?? address,
        // The proxy's own connection to this server says nothing about the client's connection to the proxy.
        isSecure: said.overTls,
        forwarding: said.address === undefined ? "none" : "used",
      };
    }
    const isForwarded = [...request.headers.keys()].some((name) => FORWARDING_HEADERS.test(name));
    return {
      address,
      // A proxy on this machine may have clients anywhere.
      isSecure: server.protocol === "https" || (isLoopback(address) && !isForwarded),
      forwarding: isForwarded ? "ignored" : "none",
    };
  };
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

/** What trusted proxies say about a request. */
interface ForwardedInfo {
  /** Undefined if no proxy names the client. */
  readonly address: string | undefined;
  /** False unless every hop says `https`. */
  readonly overTls: boolean;
}

/** One proxy's word on who connected to it. */
interface Hop {
  /** Undefined where it is hidden or garbled. */
  readonly address: string | undefined;
  readonly overTls: boolean;
}

/** What the headers say when the connection comes from the trusted proxy at `nearest`. */
function readForwarded(
  headers: Headers,
  nearest: string,
  isTrusted: (address: string) => boolean,
): ForwardedInfo {
  const standard = headers.get("forwarded");
  const hops = standard === null ? undefined : hopsOf(standard);
  const way = hops && clientHop(hops, nearest, isTrusted);
  const usual = headers.get("x-forwarded-for");
  const address = usual === null ? undefined : clientOf(usual, nearest, isTrusted);
  const protocol = headers.get("x-forwarded-proto");
  // A chain is no more confidential than its worst leg.
  const overTls = protocol?.split(",").every((one) => one.trim().toLowerCase() === "https");
  if (way === undefined) return { address, overTls: overTls === true };
  // A proxy that writes one kind of header may pass on what a client has put into the other.
  return {
    address: address === undefined || address === way.address ? way.address : nearest,
    overTls: way.overTls && overTls !== false,
  };
}

/** The right-most address of X-Forwarded-For that is no trusted proxy's. */
function clientOf(header: string, nearest: string, isTrusted: (address: string) => boolean): string {
  const hops = header.split(",").map((node) => ({ address: addressIn(node.trim()), overTls: true }));
  return clientHop(hops, nearest, isTrusted).address;
}

/** Walks from the nearest hop to the client, past trusted proxies; what lies beyond is the client's own invention. */
function clientHop(hops: readonly Hop[], nearest: string, isTrusted: (address: string) => boolean) {
  const way = { address: nearest, overTls: hops.length > 0 };
  for (const { address, overTls } of hops.toReversed()) {
    way.overTls &&= overTls;
    if (address === undefined) break;
    way.address = address;
    if (!isTrusted(address)) break;
  }
  return way;
}

const TOKEN = "[!#$%&'*+.^_`|~\\w-]+";
/** A pair of a Forwarded element, and what ends it (RFC 7239 §4). */
const PAIR = new RegExp(`[ \\t]*(${TOKEN})=(?:(${TOKEN})|"((?:[^"\\\\]|\\\\.)*)")[ \\t]*([;,]|$)`, "y");

/** The hops of a Forwarded header, the nearest last; none when it is garbled. */
function hopsOf(header: string): Hop[] {
  const hops: Hop[] = [];
  let pairs = new Map<string, string>();
  PAIR.lastIndex = 0;
  for (;;) {
    const [, name = "", token, quoted = "", end] = PAIR.exec(header) ?? [];
    if (end === undefined || pairs.has(name.toLowerCase())) return [];
    pairs.set(name.toLowerCase(), token ?? quoted.replace(/\\(.)/g, "$1"));
    if (end === ";") continue;
    const overTls = pairs.get("proto")?.toLowerCase() === "https";
    hops.push({ address: addressIn(pairs.get("for") ?? ""), overTls });
    if (end === "") return hops;
    pairs = new Map();
  }
}

/** Returns the IP address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`. */
function addressIn(node: string): string | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(node)?.[1] ?? /^([\d.]+):\d+$/.exec(node)?.[1] ?? node;
  return isIP(bare) === 0 ? undefined : bare;
}
