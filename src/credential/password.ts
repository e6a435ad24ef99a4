import { ServiceError } from "../error.ts";
import { WorkerThread } from "../worker-thread.ts";
import type { VerifyRequest } from "./password.worker.ts";
import type { VerifyPassword } from "./user.ts";

const MAX_CONCURRENT = 2;
const MAX_QUEUED = 64;
/** About a quarter of a second per hash. */
const BCRYPT_COST = 12;

/** Verifies a password against one hash. May take a quarter of a second. */
export type VerifyHash = (password: string, passwordHash: string) => Promise<boolean>;

/**
 * Verifies bcrypt and argon2id hashes in worker threads, two at a time, and serves the waiting networks in turn. When
 * the queue is full, the newest request of the network with the most requests fails with `credentials_unavailable`.
 * A flood of logins from one network therefore cannot delay the others, and its memory is bounded.
 */
export function createPasswordVerifier(verify: VerifyHash = workerPool()): VerifyPassword {
  const queue = new RoundRobinQueue();
  let running = 0;

  return async (password, passwordHash, network = "") => {
    if (running >= MAX_CONCURRENT) await queue.turn(network);
    else running++;
    try {
      return await verify(password, passwordHash);
    } finally {
      if (!queue.next()) running--;
    }
  };
}

/** Verifies in worker threads that start on demand. Replaces a thread that has exited. */
function workerPool(): VerifyHash {
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

type Turn = PromiseWithResolvers<void>;

/** Requests that wait, grouped by network; the network to serve next comes first. */
class RoundRobinQueue {
  readonly #lanes = new Map<string, Turn[]>();
  #length = 0;

  /** Resolves when the request may start; rejects if the queue is full. */
  turn(network: string): Promise<void> {
    const turn: Turn = Promise.withResolvers();
    const lane = this.#lanes.get(network) ?? [];
    lane.push(turn);
    this.#lanes.set(network, lane);
    this.#length++;
    if (this.#length > MAX_QUEUED) this.#rejectLastOfLongest();
    return turn.promise;
  }

  /** Starts the next request. Returns false if the queue is empty. */
  next(): boolean {
    const [first] = this.#lanes;
    if (first === undefined) return false;
    const [network, lane] = first;
    this.#lanes.delete(network);
    const turn = lane.shift();
    if (lane.length > 0) this.#lanes.set(network, lane);
    this.#length--;
    turn?.resolve();
    return true;
  }

  #rejectLastOfLongest(): void {
    // `>=` selects the last of equal lanes: if every network has one request, the newest is rejected.
    const [network, lane] = [...this.#lanes].reduce((one, other) =>
      other[1].length >= one[1].length ? other : one,
    );
    const turn = lane.pop();
    if (lane.length === 0) this.#lanes.delete(network);
    this.#length--;
    turn?.reject(
      new ServiceError("credentials_unavailable", { detail: "Too many passwords are being checked." }),
    );
  }
}

/** Returns a bcrypt hash with the prefix `$2y$`, which Apache's htpasswd writes and every Apache verifies. */
export async function hashPassword(password: string): Promise<string> {
  const hash = await Bun.password.hash(password, { algorithm: "bcrypt", cost: BCRYPT_COST });
  return hash.replace(/^\$2b\$/, () => "$2y$");
}
