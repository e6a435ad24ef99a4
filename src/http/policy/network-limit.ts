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
