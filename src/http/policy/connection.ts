import type { HttpServer } from "../route.ts";
import { createBlockCheck, isLoopback, parseAddress } from "./address.ts";

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

/** How requests reach a service, and which of them it accepts. */
export interface Network {
  /** IP addresses and CIDR blocks of proxies whose forwarding headers are used; none by default. */
  readonly trustedProxies: readonly string[];
  /**
   * Whether the server listens on a loopback address; false by default. If true, it accepts only loopback's values of `Host`, and
   * credentials over plain HTTP, because all clients are on this machine.
   */
  readonly onLoopback: boolean;
  /**
   * Accepted values of `Host`, besides loopback's. By default, and unless `onLoopback` is true, these are accepted, too:
   * addresses, names of local networks, and every host over this server's own TLS or from a trusted proxy. `/livez` and
   * `/readyz` accept every host.
   */
  readonly allowedHosts: readonly string[];
  /** The host and port that the server listens on, which is always accepted as well; none by default. */
  readonly ownHost: string | undefined;
  /** Origins whose pages may use the API (CORS), besides pages of loopback that request a loopback host; none by default. */
  readonly corsOrigins: readonly string[];
}

export const DEFAULT_NETWORK: Network = {
  trustedProxies: [],
  onLoopback: false,
  allowedHosts: [],
  ownHost: undefined,
  corsOrigins: [],
};

/** The headers that only proxies send. */
const FORWARDING_HEADERS = /^(?:forwarded|x-forwarded-.*|x-real-ip|via)$/;

/**
 * Reads `X-Forwarded-For` and `X-Forwarded-Proto` when the connection comes from a trusted proxy. An invalid value makes
 * the request less trusted. A request with `Forwarded` (RFC 7239) is attributed to the proxy and is never secure.
 */
export function createConnectionInfoReader({
  trustedProxies,
  onLoopback,
}: Pick<Network, "trustedProxies" | "onLoopback">): GetConnectionInfo {
  const isTrusted = createBlockCheck(trustedProxies);
  const trustsAny = trustedProxies.length > 0;

  return (request, server) => {
    const { headers } = request;
    const direct = new DirectConnection(request, server, onLoopback);
    if (trustsAny && isTrusted(direct.address)) {
      const { address } = direct;
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
    return direct;
  };
}

/** A connection without a trusted proxy. Asks for the address and searches the headers only when needed, because both take time. */
class DirectConnection implements ConnectionInfo {
  readonly #request: Request;
  readonly #server: HttpServer;
  readonly #onLoopback: boolean;
  #address: string | undefined;

  constructor(request: Request, server: HttpServer, onLoopback: boolean) {
    this.#request = request;
    this.#server = server;
    this.#onLoopback = onLoopback;
  }

  get address(): string {
    this.#address ??= this.#server.requestIP(this.#request)?.address ?? "";
    return this.#address;
  }

  get isSecure(): boolean {
    if (this.#server.protocol === "https") return true;
    // A proxy on this machine may have clients anywhere.
    return (this.#onLoopback || isLoopback(this.address)) && this.forwarding === "none";
  }

  get forwarding(): "ignored" | "none" {
    for (const name of this.#request.headers.keys()) if (FORWARDING_HEADERS.test(name)) return "ignored";
    return "none";
  }
}

/**
 * Returns the right-most address of X-Forwarded-For that is not a trusted proxy. The entries to its left may be forged.
 * Stops at the proxy before an invalid entry.
 */
function clientAddress(header: string, nearest: string, isTrusted: (address: string) => boolean): string {
  let client = nearest;
  for (const hop of header.split(",").toReversed()) {
    const address = parseAddress(hop.trim());
    if (address === undefined) break;
    client = address;
    if (!isTrusted(address)) break;
  }
  return client;
}
