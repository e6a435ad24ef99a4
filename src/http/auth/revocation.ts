import { type Identity, identityFields } from "../../credential/identity.ts";
import { isExpired, type KeyStore } from "../../credential/key.ts";
import type { Log } from "../observability/log.ts";
import type { LogLimiter } from "../observability/log-limiter.ts";

/** How long the stream of an API key continues while the keys cannot be read. */
const MAX_UNCHECKED_MS = 60_000;
/** The longest time between two checks, so that a stream ends within 20 seconds of a revocation. */
const MAX_INTERVAL_MS = 15_000;

export interface RevocationOptions {
  /** The API keys. Without them, a stream of an API key ends after a minute, and the subscriber authenticates again. */
  readonly keys: KeyStore | undefined;
  /** Milliseconds between two checks, at most 15,000. */
  readonly intervalMs: number;
  /** A steady clock in milliseconds. */
  readonly monotonicNow: () => number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Log;
  readonly limiter: LogLimiter;
}

interface Watched {
  readonly identity: Identity;
  readonly end: () => void;
  /** When the identity was last known to be valid, on the steady clock. */
  validAt: number;
}

/**
 * Ends streams whose identity is no longer valid. All API keys together take one query per check, on each replica. A check
 * of a module is not repeated.
 */
export class RevocationCheck {
  readonly #options: RevocationOptions;
  readonly #watched = new Set<Watched>();
  readonly #logError: (source: string, fields: object) => void;
  #timer: NodeJS.Timeout | undefined;
  #isReading = false;

  constructor(options: RevocationOptions) {
    this.#options = { ...options, intervalMs: Math.min(options.intervalMs, MAX_INTERVAL_MS) };
    const { log, limiter } = options;
    this.#logError = limiter.topic((fields) => log.error(fields, "credentials of subscribers not checked"));
  }

  /** Calls `end` when the identity is no longer valid. Returns a function that stops watching. */
  watch(identity: Identity, end: () => void): () => void {
    const watched = { identity, end, validAt: this.#options.monotonicNow() };
    this.#watched.add(watched);
    this.#timer ??= setInterval(() => this.#check(), this.#options.intervalMs).unref();
    return () => {
      this.#watched.delete(watched);
      if (this.#watched.size === 0) this.stop();
    };
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #check(): void {
    const { intervalMs, monotonicNow } = this.#options;
    const withKey: Watched[] = [];
    const deadline = monotonicNow() - MAX_UNCHECKED_MS + intervalMs;
    for (const watched of [...this.#watched]) {
      const { identity, validAt } = watched;
      if (this.#isRevoked(identity)) this.#end(watched, "credential no longer valid");
      else if (identity.keyId === undefined) continue;
      // The next check would be too late.
      else if (validAt < deadline) this.#end(watched, "API keys not readable");
      else withKey.push(watched);
    }
    if (withKey.length > 0 && !this.#isReading) this.#checkKeys(withKey);
  }

  /** A check that throws counts as a revocation: the subscriber then authenticates again. */
  #isRevoked({ isRevoked }: Identity): boolean {
    try {
      return isRevoked?.() === true;
    } catch (err) {
      this.#logError("", { err });
      return true;
    }
  }

  async #checkKeys(watched: readonly Watched[]): Promise<void> {
    const { keys, monotonicNow, now } = this.#options;
    if (keys === undefined) return;
    this.#isReading = true;
    const startedAt = monotonicNow();
    try {
      const all = await keys.list();
      const readAt = now();
      const valid = new Set(all.filter((key) => !isExpired(key, readAt)).map(({ id }) => id));
      for (const one of watched) {
        if (valid.has(one.identity.keyId ?? "")) one.validAt = startedAt;
        else this.#end(one, "credential no longer valid");
      }
    } catch (err) {
      this.#logError("", { err });
    } finally {
      this.#isReading = false;
    }
  }

  #end(watched: Watched, reason: string): void {
    if (!this.#watched.has(watched)) return;
    this.#options.log.info({ ...identityFields(watched.identity), reason }, "subscriber disconnected");
    watched.end();
  }
}
