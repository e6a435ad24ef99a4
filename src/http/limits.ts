import { ServiceError } from "../error.ts";

/** Limits of a service, and its intervals. */
export interface Limits {
  /** Maximum concurrent requests per path, counted separately for reads and writes; 5,000 by default. */
  readonly maxRequests: number;
  /**
   * Milliseconds before the response to a request beyond `maxRequests`, so that instant retries cannot saturate the server;
   * 1,000 by default.
   */
  readonly overloadDelayMs: number;
  /** Milliseconds in which a request's body must arrive; 10,000 by default. */
  readonly bodyTimeoutMs: number;
  /** Maximum open event streams; 1,000 by default. */
  readonly maxSubscribers: number;
  /** Maximum open event streams of one network, except loopback; a quarter of `maxSubscribers` by default. */
  readonly maxSubscribersPerNetwork: number | undefined;
  /** Milliseconds between two heartbeats of an event stream; 15,000 by default. */
  readonly heartbeatMs: number;
}

export const DEFAULT_LIMITS: Limits = {
  maxRequests: 5000,
  overloadDelayMs: 1000,
  bodyTimeoutMs: 10_000,
  maxSubscribers: 1000,
  maxSubscribersPerNetwork: undefined,
  heartbeatMs: 15_000,
};

/** Limits how many streams each network may have open at a time. Only networks with an open stream take memory. */
export class NetworkLimit {
  readonly #max: number;
  readonly #open = new Map<string, number>();

  /** @param max maximum open streams of one network */
  constructor(max: number) {
    this.#max = max;
  }

  /** Returns whether the network has as many open streams as allowed. */
  isReached(network: string): boolean {
    return this.#count(network) >= this.#max;
  }

  acquire(network: string): void {
    this.#open.set(network, this.#count(network) + 1);
  }

  release(network: string): void {
    const left = this.#count(network) - 1;
    if (left > 0) this.#open.set(network, left);
    else this.#open.delete(network);
  }

  #count(network: string): number {
    return this.#open.get(network) ?? 0;
  }
}

// Created once, because the stack trace is most of an error's cost.
export const OVERLOADED = new ServiceError("overloaded", {
  detail: "The server has reached its limit of concurrent requests.",
});
