import { Failure } from "../failure.ts";

/** So much may be under way at a time, and no more. */
export class Places {
  readonly #most: number;
  readonly #onRefusal: () => void;
  #taken = 0;

  /** @param onRefusal is told of each that found no place */
  constructor(most: number, onRefusal: () => void) {
    this.#most = most;
    this.#onRefusal = onRefusal;
  }

  get areTaken(): boolean {
    return this.#taken >= this.#most;
  }

  /** What to say to whom comes beyond. */
  refusal(): Failure {
    this.#onRefusal();
    return OVERLOADED;
  }

  take(): void {
    this.#taken++;
  }

  free(): void {
    this.#taken--;
  }
}

// Made once: it comes in floods, and a trace of the stack is what costs most of an error.
const OVERLOADED = new Failure("overloaded", {
  detail: "More is asked of the server than it takes at a time.",
});

/** Tells of something that comes in floods: the first time, then at most every ten seconds how often it came. */
export function seldom(tell: (times: number) => void, now: () => number): () => void {
  let toldAt = Number.NEGATIVE_INFINITY;
  let times = 0;
  return () => {
    times++;
    if (now() - toldAt < QUIET_MS) return;
    tell(times);
    toldAt = now();
    times = 0;
  };
}

const QUIET_MS = 10_000;
