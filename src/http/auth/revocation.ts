import { type Identity, identityFields } from "../../credential/client.ts";
import { isExpired } from "../../credential/key.ts";
import type { Context } from "../context.ts";

/** How long the stream of an API key continues while the keys cannot be read. */
const MAX_UNCHECKED_MS = 60_000;
/** The longest time between two checks, so that a stream ends within 20 seconds of a revocation. */
const MAX_INTERVAL_MS = 15_000;

interface Watched {
  readonly identity: Identity;
  readonly end: () => void;
  /** When the identity was last known to be valid, on the steady clock. */
  validAt: number;
}

export type RevocationCheck = ReturnType<typeof createRevocationCheck>;

/**
 * Ends streams whose identity is no longer valid. All API keys together take one query per check, on each replica. A check
 * of a module is not repeated. Without a store of keys, a stream of an API key ends after a minute, and the subscriber
 * authenticates again.
 */
export function createRevocationCheck({ credentials, limits, monotonicNow, now, log, limiter }: Context) {
  const { keys } = credentials;
  const intervalMs = Math.min(limits.heartbeatMs, MAX_INTERVAL_MS);
  const all = new Set<Watched>();
  const logError = limiter.topic((fields) => log.error(fields, "credentials of subscribers not checked"));
  let timer: NodeJS.Timeout | undefined;
  let isReading = false;
  return {
    /** Calls `end` when the identity is no longer valid. Returns a function that stops watching. */
    watch: (identity: Identity, end: () => void) => {
      const watched = { identity, end, validAt: monotonicNow() };
      all.add(watched);
      timer ??= setInterval(check, intervalMs).unref();
      return (): void => {
        all.delete(watched);
        if (all.size === 0) stop();
      };
    },
    stop,
  };

  function stop(): void {
    clearInterval(timer);
    timer = undefined;
  }

  function check(): void {
    const withKey: Watched[] = [];
    const deadline = monotonicNow() - MAX_UNCHECKED_MS + intervalMs;
    for (const watched of [...all]) {
      const { identity, validAt } = watched;
      if (isRevoked(identity)) end(watched, "credential no longer valid");
      else if (identity.keyId === undefined) continue;
      // The next check would be too late.
      else if (validAt < deadline) end(watched, "API keys not readable");
      else withKey.push(watched);
    }
    if (withKey.length > 0 && !isReading) checkKeys(withKey);
  }

  /** A check that throws counts as a revocation: the subscriber then authenticates again. */
  function isRevoked(identity: Identity): boolean {
    try {
      return identity.isRevoked?.() === true;
    } catch (err) {
      logError("", { err });
      return true;
    }
  }

  async function checkKeys(withKey: readonly Watched[]): Promise<void> {
    if (keys === undefined) return;
    isReading = true;
    const startedAt = monotonicNow();
    try {
      const stored = await keys.list();
      const readAt = now();
      const valid = new Set(stored.filter((key) => !isExpired(key, readAt)).map(({ id }) => id));
      for (const watched of withKey) {
        if (valid.has(watched.identity.keyId ?? "")) watched.validAt = startedAt;
        else end(watched, "credential no longer valid");
      }
    } catch (err) {
      logError("", { err });
    } finally {
      isReading = false;
    }
  }

  function end(watched: Watched, reason: string): void {
    if (!all.has(watched)) return;
    log.info({ ...identityFields(watched.identity), reason }, "subscriber disconnected");
    watched.end();
  }
}
