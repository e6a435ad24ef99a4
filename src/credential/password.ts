import { Failure } from "../failure.ts";
import type { VerifyReply, VerifyRequest } from "./password-thread.ts";
import type { VerifyPassword } from "./user.ts";

const AT_ONCE = 2;
const WAITING_MOST = 64;
/** A quarter of a second. */
const BCRYPT_COST = 12;

/** Verifies one hash; it may take a quarter of a second. */
export type Verify = (password: string, passwordHash: string) => Promise<boolean>;

/**
 * Verifies bcrypt and argon2id hashes off the event loop, two at a time, the networks that wait in turn. What does
 * not fit the queue fails with `credentials_unavailable`, the last of the network with most in it first: a flood of
 * logins must not take the memory or the cores of everyone else, nor their turns.
 */
export function passwordVerifier(verify: Verify = inThreads()): VerifyPassword {
  const queue = new FairQueue();
  let running = 0;

  return async (password, passwordHash, network = "") => {
    if (running >= AT_ONCE) await queue.turn(network);
    else running++;
    try {
      return await verify(password, passwordHash);
    } finally {
      if (!queue.next()) running--;
    }
  };
}

/** Verifies in threads of their own, which are started when they are first needed and again when they have died. */
function inThreads(): Verify {
  const idle: Thread[] = [];
  return async (password, passwordHash) => {
    const thread = idle.pop() ?? new Thread();
    const matches = await thread.verify({ password, passwordHash });
    idle.push(thread);
    return matches;
  };
}

/** Verifies one hash at a time. */
class Thread {
  readonly #worker = new Worker(new URL("./password-thread.ts", import.meta.url).href);
  #asked = Promise.withResolvers<VerifyReply>();

  constructor() {
    // It alone does not keep the process.
    this.#worker.unref();
    this.#worker.onmessage = ({ data }: MessageEvent<VerifyReply>) => this.#asked.resolve(data);
    this.#worker.onerror = ({ message }) => this.#asked.reject(new Error(message));
  }

  async verify(request: VerifyRequest): Promise<boolean> {
    this.#asked = Promise.withResolvers();
    this.#worker.postMessage(request);
    const reply = await this.#asked.promise;
    if (reply.type === "failed") throw new Error(reply.reason);
    return reply.matches;
  }
}

type Turn = PromiseWithResolvers<void>;

/** Those who wait, by network; the network whose turn is next comes first. */
class FairQueue {
  readonly #lanes = new Map<string, Turn[]>();
  #length = 0;

  /** Resolves when it is its turn; rejects when there is no room. */
  turn(network: string): Promise<void> {
    const turn: Turn = Promise.withResolvers();
    const lane = this.#lanes.get(network) ?? [];
    lane.push(turn);
    this.#lanes.set(network, lane);
    this.#length++;
    if (this.#length > WAITING_MOST) this.#refuseLastOfLongest();
    return turn.promise;
  }

  /** Whether there was somebody to let go on. */
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

  #refuseLastOfLongest(): void {
    // The last of equals, so that of many networks with one each the newcomer is refused.
    const [network, lane] = [...this.#lanes].reduce((one, other) =>
      other[1].length >= one[1].length ? other : one,
    );
    const turn = lane.pop();
    if (lane.length === 0) this.#lanes.delete(network);
    this.#length--;
    turn?.reject(new Failure("credentials_unavailable", { detail: "Too many passwords are being checked." }));
  }
}

/** A bcrypt hash, with the prefix that Apache's htpasswd writes and every Apache verifies. */
export async function hashPassword(password: string): Promise<string> {
  const hash = await Bun.password.hash(password, { algorithm: "bcrypt", cost: BCRYPT_COST });
  return hash.replace(/^\$2b\$/, () => "$2y$");
}
