import { isUtf8 } from "node:buffer";

/**
 * What an Authorization header holds for one scheme. `absent`: no header, or another scheme. `malformed`:
 * the scheme, but not its syntax, which two headers are too (they arrive joined by a comma).
 */
export type Presented<Credential> =
  | { readonly state: "absent" }
  | { readonly state: "malformed" }
  | { readonly state: "presented"; readonly credential: Credential };

export interface BasicCredential {
  readonly user: string;
  readonly password: string;
}

const ABSENT = { state: "absent" } as const;
const MALFORMED = { state: "malformed" } as const;

const BEARER = /^bearer(?: |$)/i;
// Any opaque token: visible ASCII. A comma would be a second header.
const TOKEN = /^bearer +([\x21-\x2b\x2d-\x7e]+)$/i;
const BASIC = /^basic(?: |$)/i;
const TOKEN68 = /^basic +([A-Za-z0-9+/]+={0,2})$/i;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what RFC 7617 forbids
const CONTROL = /[\x00-\x1f\x7f]/;

/** Reads `Bearer <token>` (RFC 6750 §2.1), the scheme in any case. */
export function parseBearer(header: string | null): Presented<string> {
  if (header === null || !BEARER.test(header)) return ABSENT;
  const token = TOKEN.exec(header)?.[1];
  return token === undefined ? MALFORMED : { state: "presented", credential: token };
}

/** Reads `Basic <base64 of user:password>` (RFC 7617 §2): strict base64, strict UTF-8, no control characters. */
export function parseBasic(header: string | null): Presented<BasicCredential> {
  if (header === null || !BASIC.test(header)) return ABSENT;
  const encoded = TOKEN68.exec(header)?.[1];
  if (encoded === undefined) return MALFORMED;
  const bytes = Buffer.from(encoded, "base64");
  // Buffer skips what is not base64, so that only what encodes back to itself was base64.
  if (bytes.toString("base64") !== encoded || !isUtf8(bytes)) return MALFORMED;
  const pair = bytes.toString("utf8");
  const colon = pair.indexOf(":");
  if (colon < 0 || CONTROL.test(pair)) return MALFORMED;
  return { state: "presented", credential: { user: pair.slice(0, colon), password: pair.slice(colon + 1) } };
}
