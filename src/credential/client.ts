import { timingSafeEqual } from "node:crypto";
import type { Awaitable } from "../todo.ts";
import { entriesOf } from "./lines.ts";
import { hashToken } from "./token.ts";

/** Who a bearer token belongs to. */
export interface Client {
  readonly name: string;
}

/** Yields the client of a token, or nothing; a throw means that it could not be looked up. */
export type LookupClient = (token: string) => Awaitable<Client | undefined>;

/** A client and the SHA-256 of its token. */
export interface StoredClient {
  readonly client: Client;
  readonly tokenHash: Uint8Array;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: a name goes into a text response and into logs
const CONTROL = /[\x00-\x1f\x7f]/;

/** Looks a token up by its hash, then compares the digests in constant time. */
export function lookupAmong(stored: Iterable<StoredClient>): (token: string) => Client | undefined {
  const byHash = new Map<string, StoredClient>();
  for (const entry of stored) byHash.set(Buffer.from(entry.tokenHash).toString("latin1"), entry);
  return (token) => {
    const tokenHash = hashToken(token);
    const entry = byHash.get(tokenHash.toString("latin1"));
    return entry !== undefined && timingSafeEqual(entry.tokenHash, tokenHash) ? entry.client : undefined;
  };
}

/**
 * Reads a clients file: a line `name:SHA256-HEX-OF-TOKEN` for each token, split at the last colon; blank
 * lines and lines that start with `#` are skipped. Throws an Error that names the line.
 */
export function parseClients(text: string): StoredClient[] {
  const clients: StoredClient[] = [];
  const lineOf = new Map<string, number>();
  for (const [number, line] of entriesOf(text)) {
    const colon = line.lastIndexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).trim();
    const hex = line
      .slice(colon + 1)
      .trim()
      .toLowerCase();
    if (colon < 0 || name === "") throw new Error(`line ${number} is not "name:SHA-256 of the token in hex"`);
    if (CONTROL.test(name)) throw new Error(`line ${number} has a control character in the name`);
    if (!/^[0-9a-f]{64}$/.test(hex)) {
      throw new Error(
        `line ${number} has no SHA-256 in hex behind the last colon: printf %s "$TOKEN" | sha256sum`,
      );
    }
    const earlier = lineOf.get(hex);
    if (earlier !== undefined) throw new Error(`line ${number} has the same token as line ${earlier}`);
    lineOf.set(hex, number);
    clients.push({ client: { name }, tokenHash: Buffer.from(hex, "hex") });
  }
  return clients;
}
