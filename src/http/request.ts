import { hash } from "node:crypto";
import type { Identity } from "../credential/client.ts";
import { ServiceError } from "../error.ts";

/**
 * Returns the value of a parameter in a query. Throws `invalid_query` for a bad or repeated value.
 * @param parse returns `undefined` for a bad value
 */
export function readParameter<T>(
  query: URLSearchParams,
  name: string,
  parse: (value: string) => T | undefined,
  expected: string,
): T | undefined {
  const values = query.getAll(name);
  if (values.length === 0) return undefined;
  const value = values.length === 1 ? parse(values[0] ?? "") : undefined;
  if (value !== undefined) return value;
  throw new ServiceError("invalid_query", { detail: `Send ${name} once, as ${expected}.` });
}

/** Matches one entity tag of a list; the group is its opaque tag without the quotes. */
const ENTITY_TAG = /(?:^|,)[ \t]*(?:W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(?=,|$)/g;

/** Matches what proxies that compress append to an opaque tag: `-gzip`, `--gzip` or `;gz`. */
const CODINGS = /(?:[-;]{1,2}[a-z]{1,8}){1,2}$/;

const withoutCodings = (opaqueTag: string): string => opaqueTag.replace(CODINGS, "");

/** Returns the text of an entity tag as it was before proxies changed it. `W/` and the quotes may be absent. */
export const originalTag = (text: string): string =>
  withoutCodings(text.replace(/^W\//, "").replace(/^"(.*)"$/, "$1"));

/**
 * Returns whether `If-None-Match` is `*` or lists the entity tag, by weak comparison (RFC 9110 §13.1.2, §8.8.3.2), also if
 * a proxy has changed the tag in between.
 */
export function matchesEtag(ifNoneMatch: string, etag: string): boolean {
  if (ifNoneMatch === "*") return true;
  // Weak comparison ignores the W/ before a tag.
  const own = etag.replace(/^W\//, "").slice(1, -1);
  return ifNoneMatch
    .matchAll(ENTITY_TAG)
    .some(([, listed = ""]) => listed === own || withoutCodings(listed) === own);
}

const MAX_KEY_LENGTH = 255;

// A structured-field string (RFC 9651 §3.3.3), or the same without quotes, as most clients send it.
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])+)"$/;
const BARE = /^[!#-+\--:<-[\]-~]+$/;

/**
 * Reads the header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header §2). Throws
 * `invalid_idempotency_key` for an invalid key, and for two keys.
 */
export function readIdempotencyKey(headers: Headers): string | undefined {
  const text = headers.get("idempotency-key");
  if (text === null) return undefined;
  const key = BARE.test(text) ? text : QUOTED.exec(text)?.[1]?.replace(/\\(.)/g, "$1");
  if (key !== undefined && key.length <= MAX_KEY_LENGTH) return key;
  throw new ServiceError("invalid_idempotency_key", {
    detail: `Send one string of 1 to ${MAX_KEY_LENGTH} visible characters, such as "8e03978e-40d5-43dd-bc93-6894a57f9324".`,
  });
}

/**
 * Returns the key to store: the sent one, or in private mode a digest of the sender's identity and the sent key, so that
 * equal keys of two identities mean two requests. All API keys of one name are the same identity, so a rotation keeps it.
 */
export function storedIdempotencyKey(sent: string, identity: Identity | undefined): string {
  if (identity === undefined) return sent;
  return hash("sha256", JSON.stringify([identity.kind, identity.name, sent]), "base64url");
}
