import { isUtf8 } from "node:buffer";

/**
 * The result of parsing an Authorization header for one scheme. `absent`: no header, or another scheme. `malformed`:
 * the scheme with invalid syntax. Two headers are malformed too, because they arrive joined by a comma.
 */
export type ParsedAuthorization<Credential> =
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
// Any visible ASCII characters. A comma would mean a second header.
const TOKEN = /^bearer +([\x21-\x2b\x2d-\x7e]+)$/i;
const BASIC = /^basic(?: |$)/i;
const TOKEN68 = /^basic +([A-Za-z0-9+/]+={0,2})$/i;
/** Matches the ASCII control characters, which RFC 7617 section 2 forbids in user names and passwords. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern is about control characters
export const CONTROL_CHARACTER = /[\x00-\x1f\x7f]/;

/** Parses `Bearer <token>` (RFC 6750, section 2.1). The scheme is case-insensitive. */
export function parseBearer(header: string | null): ParsedAuthorization<string> {
  if (header === null || !BEARER.test(header)) return ABSENT;
  const token = TOKEN.exec(header)?.[1];
  return token === undefined ? MALFORMED : { state: "presented", credential: token };
}

/** Parses `Basic <base64 of user:password>` (RFC 7617, section 2): strict base64 and UTF-8, no control characters. */
export function parseBasic(header: string | null): ParsedAuthorization<BasicCredential> {
  if (header === null || !BASIC.test(header)) return ABSENT;
  const encoded = TOKEN68.exec(header)?.[1];
  if (encoded === undefined) return MALFORMED;
  const bytes = Buffer.from(encoded, "base64");
  // Buffer ignores invalid base64. The text is valid only if its bytes encode to the same text again.
  if (bytes.toString("base64") !== encoded || !isUtf8(bytes)) return MALFORMED;
  const pair = bytes.toString("utf8");
  const colon = pair.indexOf(":");
  if (colon < 0 || CONTROL_CHARACTER.test(pair)) return MALFORMED;
  return { state: "presented", credential: { user: pair.slice(0, colon), password: pair.slice(colon + 1) } };
}
