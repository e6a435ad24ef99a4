import { hash } from "node:crypto";
import type { Identity } from "../credential/client.ts";
import { ServiceError } from "../error.ts";

const MAX_LENGTH = 255;

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
  if (key !== undefined && key.length <= MAX_LENGTH) return key;
  throw new ServiceError("invalid_idempotency_key", {
    detail: `Send one string of 1 to ${MAX_LENGTH} visible characters, such as "8e03978e-40d5-43dd-bc93-6894a57f9324".`,
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
