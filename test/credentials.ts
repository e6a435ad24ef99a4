import type { Scope } from "../src/credential/client.ts";
import { createKey, type KeyStore, type MintedKey } from "../src/credential/key.ts";

/** Returns the value of Authorization for a user name and a password (RFC 7617). */
export const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;

export const as = (authorization: string, headers: Readonly<Record<string, string>> = {}) => ({
  headers: { Authorization: authorization, ...headers },
});

async function textOrStatus(url: string, authorization: string, ca?: string): Promise<string | number> {
  const response = await fetch(url, { ...as(authorization), ...(ca !== undefined && { tls: { ca } }) });
  return response.status === 200 ? response.text() : response.status;
}

export const whoami = (url: string, token: string) => textOrStatus(`${url}/api/whoami`, `Bearer ${token}`);

/** @param ca the certificate of the server, as PEM */
export const greet = (url: string, user: string, password: string, ca?: string) =>
  textOrStatus(`${url}/admin/`, basic(user, password), ca);

interface KeyOptions {
  readonly scope?: Scope;
  readonly now?: number;
  /** In milliseconds; by default the key does not expire. */
  readonly lifetime?: number | undefined;
}

export async function mint(keys: KeyStore, name: string, options: KeyOptions = {}): Promise<MintedKey> {
  const { scope = "write", now = Date.now(), lifetime } = options;
  const minted = await createKey(keys, name, lifetime, now, scope);
  if (minted === undefined) throw new Error(`no key for ${name}`);
  return minted;
}
