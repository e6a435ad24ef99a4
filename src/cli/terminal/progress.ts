import type { OnProgress } from "../../storage/maintenance.ts";
import { getColumns, type Output, truncate } from "./output.ts";

const FIRST_MS = 1000;
const INTERVAL_MS = 200;

/**
 * A line of a terminal that shows how far long work is, from the first second on, such as
 * `importing: 412,000 of 1,000,000 to-dos, 52,000/s`. In a pipe, it shows nothing.
 */
export class ProgressLine {
  readonly #output: Pick<Output, "isTTY" | "columns" | "write">;
  readonly #now: () => number;
  /** When the next update is due, in milliseconds of the clock. */
  #due: number;
  #isShown = false;
  /** The step under way, and what was done of it when it was reported for the first time. */
  #step = { name: "", since: 0, before: 0 };

  constructor(output: Pick<Output, "isTTY" | "columns" | "write">, now = () => performance.now()) {
    this.#output = output;
    this.#now = now;
    this.#due = now() + FIRST_MS;
  }

  readonly report: OnProgress = (name, done, total) => {
    if (!this.#output.isTTY) return;
    const now = this.#now();
    if (name !== this.#step.name) this.#step = { name, since: now, before: done };
    if (done === total) this.clear();
    else if (now >= this.#due) this.#show(done, total, now);
  };

  /** Removes the line, so that other text can follow. */
  clear(): void {
    if (this.#isShown) this.#output.write("\r\x1b[K");
    this.#isShown = false;
  }

  #show(done: number, total: number | undefined, now: number): void {
    const { name, since, before } = this.#step;
    const amount = total === undefined ? format(done) : `${format(done)} of ${format(total)}`;
    const rate = now > since ? `, ${format(((done - before) / (now - since)) * 1000)}/s` : "";
    const line = truncate(`${name}: ${amount} to-dos${rate}`, getColumns(this.#output) - 1);
    this.#output.write(`\r${line}\x1b[K`);
    this.#isShown = true;
    this.#due = now + INTERVAL_MS;
  }
}

const format = (count: number): string => Math.round(count).toLocaleString("en-US");
