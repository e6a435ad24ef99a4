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

/** The maximum size of a request body. */
export const MAX_BODY_BYTES = 64 * 1024;

/** The runtime rejects a larger body with an empty 413. It keeps smaller ones in memory until they are complete. */
export const MAX_REQUEST_BYTES = 2 * MAX_BODY_BYTES;

/**
 * The time limit for receiving a whole request, and for the next request on a kept-alive connection to begin. The
 * runtime adds up to 2 seconds.
 */
export const IDLE_SECONDS = 10;

// Created once, because the stack trace is most of an error's cost.
export const OVERLOADED = new ServiceError("overloaded", {
  detail: "The server has reached its limit of concurrent requests.",
});
