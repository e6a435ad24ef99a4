import { ServiceError } from "../error.ts";
import { WorkerThread } from "../worker-thread.ts";
import type { VerifyRequest } from "./password.worker.ts";
import type { VerifyPassword } from "./user.ts";

const MAX_CONCURRENT = 2;
const MAX_QUEUED = 64;
/** About a quarter of a second per hash. */
const BCRYPT_COST = 12;

/**
 * Verifies bcrypt and argon2id hashes in worker threads, two at a time, and serves the waiting networks in turn. When
 * the queue is full, the newest request of the network with the most requests fails with `credentials_unavailable`.
 * A flood of logins from one network therefore cannot delay the others, and its memory is bounded.
 */
export function createPasswordVerifier(verify: VerifyPassword = workerPool()): VerifyPassword {
  /** The waiting requests in the order in which they start. */
  const queue: Waiting[] = [];
  let running = 0;
  let round = 0;

  return async (password, passwordHash, network = "") => {
    if (running >= MAX_CONCURRENT) await waitForTurn(network);
    else running++;
    try {
      return await verify(password, passwordHash);
    } finally {
      const next = queue.shift();
      if (next === undefined) running--;
      round = next?.round ?? round;
      next?.turn.resolve();
    }
  };

  function waitForTurn(network: string): Promise<void> {
    const latest = queue.findLast((waiting) => waiting.network === network)?.round ?? round;
    const waiting = { network, round: latest + 1, turn: Promise.withResolvers<void>() };
    queue.splice(queue.findLastIndex((other) => other.round <= waiting.round) + 1, 0, waiting);
    // The last one is the newest of those with the most requests of their network before them.
    const excess = queue.length > MAX_QUEUED ? queue.pop() : undefined;
    excess?.turn.reject(
      new ServiceError("credentials_unavailable", { detail: "Too many passwords are being checked." }),
    );
    return waiting.turn.promise;
  }
}

/** A request that waits. In each round, every network has one. */
interface Waiting {
  readonly network: string;
  readonly round: number;
  readonly turn: PromiseWithResolvers<void>;
}

/** Verifies in worker threads that start on demand. Replaces a thread that has exited. */
function workerPool(): VerifyPassword {
  const idle: WorkerThread<VerifyRequest, boolean>[] = [];
  return async (password, passwordHash) => {
    let thread = idle.pop();
    while (thread?.hasExited) thread = idle.pop();
    thread ??= new WorkerThread(new URL("./password.worker.ts", import.meta.url));
    try {
      return await thread.request({ password, passwordHash });
    } finally {
      idle.push(thread);
    }
  };
}

/** Returns a bcrypt hash with the prefix `$2y$`, which Apache's htpasswd writes and every Apache verifies. */
export async function hashPassword(password: string): Promise<string> {
  const hash = await Bun.password.hash(password, { algorithm: "bcrypt", cost: BCRYPT_COST });
  return hash.replace(/^\$2b\$/, () => "$2y$");
}
