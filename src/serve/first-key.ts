import { reachableUrl } from "../config/address.ts";
import type { Config } from "../config/config.ts";
import { createKey, type KeyStore } from "../credential/key.ts";

/** The name of the API key that a private server creates at its first start. */
const NAME = "first";

/** Asks on a terminal whether to create the first API key. Returns false without a terminal. */
export function confirmFirstKey(): boolean {
  if (!process.stdin.isTTY || !process.stdout.isTTY) return false;
  return confirm(`No credentials exist, and private mode needs one. Create an API key named "${NAME}"?`);
}

export interface Reachability {
  readonly access: Pick<Config["access"], "allowBasicOverHttp">;
  /** Whether the server listens on loopback only. */
  readonly onLoopback: boolean;
}

/** Returns where to open the list. Without TLS, the server accepts the key over loopback only. */
export function whereToOpen(listenerUrl: string, { onLoopback, access }: Reachability): string {
  const { protocol, hostname } = new URL(listenerUrl);
  const url = reachableUrl(listenerUrl);
  const acceptsOthers = protocol === "https:" || access.allowBasicOverHttp;
  if (new URL(url).hostname !== hostname)
    return `Open ${url} in a browser on this machine.${acceptsOthers ? "" : " Other machines need HTTPS."}`;
  if (onLoopback || acceptsOthers) return `Open ${url} in a browser.`;
  return "To open the list in a browser, set --tls-cert and --tls-key, or use a proxy that terminates TLS.";
}

/**
 * Creates the first API key and prints its token once, on standard error, because secrets do not belong in the log.
 * @param advice says where to open the list
 */
export async function showFirstKey(keys: KeyStore, advice: string): Promise<void> {
  const minted = await createKey(keys, NAME, undefined, Date.now());
  if (minted === undefined) throw new Error(`an API key named ${NAME} was created meanwhile`);
  process.stderr.write(`
The token of the API key ${minted.key.id} (${minted.key.name}) is shown only once:

${minted.token}

${advice} Sign in with the token.

`);
}
