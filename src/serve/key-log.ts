import { formatTime, isExpired, isListed, type Key, type KeyStore } from "../credential/key.ts";
import { errorMessage } from "../error-message.ts";
import type { Log } from "../http/observability/log.ts";

/**
 * Logs each API key at the start, so that the log shows changes made while no server ran. Then logs each one that has been
 * added or deleted, also by a command or by another replica. A change over HTTP has a line with the user as well.
 * @param intervalMs milliseconds between two checks
 */
export function logKeyChanges(keys: KeyStore, log: Log, intervalMs = 10_000): void {
  let known: ReadonlyMap<string, Key> | undefined;
  let failure: string | undefined;
  const check = async (): Promise<void> => {
    try {
      const all = (await keys.list()).filter((key) => isListed(key, Date.now()));
      const listed = new Map(all.map((key) => [key.id, key]));
      for (const key of listed.values())
        if (known?.has(key.id) !== true) log.info(describe(key), known ? "key added" : "key present");
      // The store deletes expired keys by itself.
      for (const key of known?.values() ?? [])
        if (!listed.has(key.id) && !isExpired(key, Date.now())) log.info(describe(key), "key deleted");
      known = listed;
      failure = undefined;
    } catch (error) {
      const reason = errorMessage(error);
      if (reason !== failure) log.warn({ reason }, "API keys not read");
      failure = reason;
    }
    setTimeout(check, intervalMs).unref();
  };
  check();
}

const describe = ({ id, name, scope, expiresAt }: Key) => ({
  key: id,
  client: name,
  scope,
  expiresAt: expiresAt === undefined ? undefined : formatTime(expiresAt),
});
