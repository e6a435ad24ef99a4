import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";

/** What is to end; `Bun.serve`'s server is one. */
export interface Closable {
  /** How many requests have come whose answer is not sent yet; those whose head is not whole do not count. */
  readonly pendingRequests: number;
  /** Takes no more connections, closes those that are idle, resolves when all are closed; with `true`, closes all. */
  stop(all?: boolean): Promise<void>;
}

/** How long each open connection has to send one more request, whose answer then says that it was the last. */
const LINGER_MS = 200;
/** What was accepted is answered within this time, or cut off. */
const FINISH_WITHIN_MS = 8000;
const LOOK_EVERY_MS = 20;

/**
 * Ends a server whose responses close their connections already (RFC 9112 §9.6): closes the port, answers what was
 * accepted, and cuts off what has not come or gone in time. Resolves with how many requests were cut off.
 */
export async function close(server: Closable): Promise<number> {
  await sleep(LINGER_MS);
  // On a busy machine the time is over before what has come meanwhile is read: its connection would pass for a quiet one.
  for (let turns = 0; turns < 3; turns++) await turn();
  const stopped = server.stop().then(() => true);
  const deadline = performance.now() + FINISH_WITHIN_MS;
  // Once nothing is pending, all that is left are connections that have not said what they want.
  while (server.pendingRequests > 0 && performance.now() < deadline) {
    if (await Promise.race([stopped, sleep(LOOK_EVERY_MS, false)])) return 0;
  }
  const cutOff = server.pendingRequests;
  await server.stop(true);
  return cutOff;
}
