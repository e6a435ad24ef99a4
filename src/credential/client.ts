import { timingSafeEqual } from "node:crypto";
import type { Awaitable } from "../awaitable.ts";
import { validationError } from "../validation.ts";
import { CONTROL_CHARACTER } from "./authorization.ts";
import { hashToken } from "./token.ts";

/**
 * What a client may do in private mode. `read`: read to-dos and subscribe to events; `write`: also change to-dos. Without
 * private mode, to-dos are open to everyone and scopes have no effect.
 */
export type Scope = "read" | "write";

/** Validates a scope. Returns `write` for `undefined`; throws `validation_failed` for any other value. */
export function parseScope(scope: unknown = "write"): Scope {
  if (isScope(scope)) return scope;
  throw validationError("scope", 'must be "read" or "write"');
}

export const isScope = (value: unknown): value is Scope => value === "read" || value === "write";

/** An API key, or a user or a client that has none, with the hash of its stored entry, which is empty if nothing is stored. */
export type Parent =
  | { readonly kind: "key"; readonly id: string }
  | { readonly kind: "user" | "client"; readonly name: string; readonly entryHash: string };

/** The client that holds a bearer token. */
export interface Client {
  readonly name: string;
  /** What the client may do in private mode. Default: `write`. */
  readonly scope?: Scope;
  /** The id of the API key, if the client is one. Logs show it. */
  readonly keyId?: string;
  /** What the API key of a browser was made with. */
  readonly parent?: Parent;
  /** Returns whether the token is no longer valid. Open event streams are checked with it. */
  readonly isRevoked?: () => boolean;
}

/** The authenticated sender of a request in private mode. */
export interface Identity {
  /** Clients and users with the same name are different identities. */
  readonly kind: "client" | "user";
  readonly name: string;
  /** Users may always write. */
  readonly scope: Scope;
  /** The id of the API key, if the client has one. */
  readonly keyId: string | undefined;
  /** What the API key of a browser was made with. */
  readonly parent?: Parent | undefined;
  /** Returns whether the credential is no longer valid. API keys are also checked by their ids. */
  readonly isRevoked: (() => boolean) | undefined;
}

/** Returns the log fields that name an identity. A browser's parent appears without the hash of its entry. */
export function identityFields({ kind, name, keyId, parent }: Identity) {
  const made = parent && `${parent.kind}:${parent.kind === "key" ? parent.id : parent.name}`;
  return { [kind]: name, key: keyId, parent: made };
}

/**
 * Returns the client that holds a token, or `undefined` for an unknown token. If it throws, the request gets a 503.
 *
 * @example
 * ```ts
 * import { createClientLookup, type LookupClient, parseClients } from "todo-service/credentials";
 *
 * const lookup: LookupClient = createClientLookup(
 *   parseClients("alice:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"),
 * );
 * const client = await lookup("foo");
 * ```
 */
export type LookupClient = (token: string) => Awaitable<Client | undefined>;

/** A client and the SHA-256 of its token, 32 bytes. */
export interface StoredClient {
  readonly client: Client;
  readonly tokenHash: Uint8Array;
}

/**
 * Returns a function that looks a token up by its SHA-256 and compares the hashes in constant time.
 *
 * @example
 * ```ts
 * import { createHash } from "node:crypto";
 * import { createClientLookup } from "todo-service/credentials";
 *
 * const tokenHash = createHash("sha256").update("secret").digest();
 * const lookupClient = createClientLookup([{ client: { name: "alice" }, tokenHash }]);
 * ```
 */
export function createClientLookup(stored: Iterable<StoredClient>): (token: string) => Client | undefined {
  const byHash = new Map<string, StoredClient>();
  for (const entry of stored) byHash.set(Buffer.from(entry.tokenHash).toString("latin1"), entry);
  return (token) => {
    const tokenHash = hashToken(token);
    const entry = byHash.get(tokenHash.toString("latin1"));
    return entry !== undefined && timingSafeEqual(entry.tokenHash, tokenHash) ? entry.client : undefined;
  };
}

/**
 * Parses a clients file: one line `name:SHA256-HEX-OF-TOKEN` per token, split at the last colon. `:read` after the hash
 * gives the client the scope `read`, and `:write` gives it `write`, the default. Skips blank lines and lines that start
 * with `#`. Throws an Error that names the invalid line.
 *
 * @example
 * ```ts
 * import { readFileSync } from "node:fs";
 * import { createClientLookup, parseClients } from "todo-service/credentials";
 *
 * const lookupClient = createClientLookup(parseClients(readFileSync("clients", "utf8")));
 * ```
 */
export function parseClients(text: string): StoredClient[] {
  const clients: StoredClient[] = [];
  const lineByHash = new Map<string, number>();
  for (const [number, line] of parseEntries(text)) {
    const [, entry = line, scope] = /^(.*:\s*[0-9a-f]{64}\s*):\s*(.*?)\s*$/is.exec(line) ?? [];
    const colon = entry.lastIndexOf(":");
    const name = entry.slice(0, Math.max(colon, 0)).trim();
    const hex = entry
      .slice(colon + 1)
      .trim()
      .toLowerCase();
    if (colon < 0 || name === "") throw new Error(`line ${number} is not "name:SHA-256 of the token in hex"`);
    if (CONTROL_CHARACTER.test(name)) throw new Error(`line ${number} has a control character in the name`);
    if (!/^[0-9a-f]{64}$/.test(hex)) {
      throw new Error(
        `line ${number} has no SHA-256 in hex after the last colon: printf %s "$TOKEN" | sha256sum`,
      );
    }
    if (scope !== undefined && !isScope(scope))
      throw new Error(`line ${number} has a scope other than "read" and "write" after the SHA-256`);
    const earlier = lineByHash.get(hex);
    if (earlier !== undefined) throw new Error(`line ${number} has the same token as line ${earlier}`);
    lineByHash.set(hex, number);
    clients.push({
      client: { name, ...(scope !== undefined && { scope }) },
      tokenHash: Buffer.from(hex, "hex"),
    });
  }
  return clients;
}

/** Yields each entry of a credentials file with its line number, from 1. Skips blank lines and lines that start with `#`. */
export function* parseEntries(text: string): Generator<readonly [number: number, line: string]> {
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() !== "" && !line.startsWith("#")) yield [index + 1, line];
  }
}
