import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";

/** A server that can be closed, such as the one that `Bun.serve` returns. */
export interface Closable {
  /** The number of requests whose head has arrived and whose response has not been sent. */
  readonly pendingRequests: number;
  /** Closes the listener and idle connections; resolves when no connection is left. With `true`, closes every connection. */
  stop(all?: boolean): Promise<void>;
}

/** Accepted requests that take longer than this are aborted. */
const DRAIN_TIMEOUT_MS = 8000;
const POLL_INTERVAL_MS = 20;

/**
 * Closes the listener of a server, answers the requests that it accepted, and closes their connections.
 * Aborts requests that are still pending after 8 seconds, and resolves with their number.
 */
export async function shutdown(server: Closable): Promise<number> {
  // A request that has arrived but was not read yet would be lost, because its connection still counts as idle.
  for (let turns = 0; turns < 3; turns++) await turn();
  const stopped = server.stop().then(() => true);
  const deadline = performance.now() + DRAIN_TIMEOUT_MS;
  // Without a pending request, the remaining connections have sent nothing or half a head.
  while (server.pendingRequests > 0 && performance.now() < deadline) {
    if (await Promise.race([stopped, sleep(POLL_INTERVAL_MS, false)])) return 0;
  }
  const aborted = server.pendingRequests;
  await server.stop(true);
  return aborted;
}
