import { Failure } from "../failure.ts";

const MAX_LENGTH = 255;

// A string of structured fields (RFC 9651 §3.3.3), or the same without its quotes, as most clients send it.
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])+)"$/;
const BARE = /^[!#-+\--:<-[\]-~]+$/;

/**
 * Reads the header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header §2). Throws
 * `invalid_idempotency_key` for what is none, two of them included.
 */
export function readIdempotencyKey(headers: Headers): string | undefined {
  const text = headers.get("idempotency-key");
  if (text === null) return undefined;
  const key = BARE.test(text) ? text : QUOTED.exec(text)?.[1]?.replace(/\\(.)/g, "$1");
  if (key !== undefined && key.length <= MAX_LENGTH) return key;
  throw new Failure("invalid_idempotency_key", {
    detail: `Send one string of 1 to ${MAX_LENGTH} visible characters, such as "8e03978e-40d5-43dd-bc93-6894a57f9324".`,
  });
}

/** Lets a key be in use by one request at a time; the others fail with `idempotency_key_in_flight`. */
export function oneAtATime(): <T>(key: string, answer: () => Promise<T>) => Promise<T> {
  const inFlight = new Set<string>();
  return async (key, answer) => {
    if (inFlight.has(key)) {
      throw new Failure("idempotency_key_in_flight", {
        detail: "Wait for the answer to the first request, or ask again.",
        headers: { "Retry-After": "1" },
      });
    }
    inFlight.add(key);
    try {
      return await answer();
    } finally {
      inFlight.delete(key);
    }
  };
}
