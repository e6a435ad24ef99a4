import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorMessage, toError } from "../../error-message.ts";
import { createFileAtomic } from "../atomic-file.ts";
import { type ExportContents, writeExport } from "../ndjson.ts";
import { isDamage } from "./errors.ts";
import { PRIVATE_MODE } from "./files.ts";

const CHECK_INTERVAL_MS = 10_000;
/** A file that was moved away may be back then. */
const RETRY_INTERVAL_MS = 1000;
const ATTEMPTS_AT_END = 5;

export interface RescueOptions {
  /** The path of the store. */
  readonly path: string;
  /** A folder for the rescue file if the folder of the store cannot be used. */
  readonly otherFolder: string | undefined;
  /** Rejects if the files of the store are not as the server left them. */
  readonly check: () => Promise<unknown>;
  /** Called when the files fail their check for the first time. */
  readonly onFailure: () => void;
  /** Returns a snapshot of everything that the server holds. */
  readonly contents: () => ExportContents;
  readonly onWarning: (message: string) => void;
}

/**
 * Checks the files of a running store from time to time. If they fail the check twice, it writes everything that the server
 * holds to a new file beside the store, in the export format.
 */
export class Rescue {
  readonly #options: RescueOptions;
  #timer: NodeJS.Timeout | undefined;
  /** When the next check is due, in milliseconds of `performance.now`. */
  #due = 0;
  #running: Promise<unknown> | undefined;
  #failure: Error | undefined;
  /** Damage that a write has found, and no check of the files can find. */
  #damage: Error | undefined;
  #file: string | undefined;
  /** Counts the acknowledged writes, because an older file does not contain the latest one. */
  #writes = 0;
  #lastProblem: string | undefined;
  #isClosed = false;

  constructor(options: RescueOptions) {
    this.#options = options;
    this.#schedule(CHECK_INTERVAL_MS);
  }

  /** The rescue file; `undefined` if there is none, or if writes were acknowledged after it. */
  get file(): string | undefined {
    return this.#file;
  }

  /** To be called after each acknowledged write. */
  writeSucceeded(): void {
    this.#writes++;
    this.#file = undefined;
    this.#damage = undefined;
  }

  /** To be called after a failed write: checks the files soon. */
  writeFailed(cause: unknown): void {
    if (isDamage(cause)) this.#damage = toError(cause);
    if (this.#due - performance.now() > RETRY_INTERVAL_MS && this.#file === undefined)
      this.#schedule(RETRY_INTERVAL_MS);
  }

  /**
   * Ends the checks.
   * @param failure why the files failed their last check; then the server exits only with a rescue file, or after some attempts
   */
  async close(failure: Error | undefined = this.#damage): Promise<void> {
    this.#isClosed = true;
    await this.#running;
    clearTimeout(this.#timer);
    if (failure === undefined) return;
    for (let attempt = 1; !(await this.#save(failure)) && attempt < ATTEMPTS_AT_END; attempt++)
      await Bun.sleep(RETRY_INTERVAL_MS);
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#due = performance.now() + ms;
    this.#timer = setTimeout(() => {
      this.#running ??= this.#run().finally(() => {
        this.#running = undefined;
      });
    }, ms).unref();
  }

  async #run(): Promise<void> {
    const failure = await this.#findFailure();
    if (failure === undefined) this.#recovered();
    else if (this.#failure === undefined) this.#options.onFailure();
    else await this.#save(failure);
    const isUnsaved = failure !== undefined && this.#file === undefined;
    this.#failure = failure;
    this.#schedule(isUnsaved ? RETRY_INTERVAL_MS : CHECK_INTERVAL_MS);
  }

  async #findFailure(): Promise<Error | undefined> {
    try {
      await this.#options.check();
      return this.#damage;
    } catch (error) {
      return toError(error);
    }
  }

  #recovered(): void {
    if (this.#file !== undefined)
      this.#options.onWarning(`the files of the store are right again: ${this.#file} is not needed any more`);
    this.#file = undefined;
    this.#lastProblem = undefined;
  }

  /** Writes the rescue file unless there is one. Returns whether there is one. */
  async #save(failure: Error): Promise<boolean> {
    if (this.#file !== undefined) return true;
    const { path, otherFolder, onWarning } = this.#options;
    const time = new Date().toISOString().replaceAll(/[-:.]/g, "");
    const reasons: string[] = [];
    for (const folder of [dirname(path), otherFolder]) {
      if (folder === undefined) continue;
      const file = join(folder, `${basename(path)}.rescue-${time}.ndjson`);
      const writes = this.#writes;
      try {
        await this.#write(file);
      } catch (error) {
        reasons.push(errorMessage(error));
        continue;
      }
      if (writes === this.#writes) this.#file = file;
      onWarning(
        `${failure.message}. If you cannot, stop the server, run todo restore ${file} --store sqlite:${path}, and start the server: that file has everything that the server holds`,
      );
      return true;
    }
    this.#warnOnce(
      `do not stop the server, because only its memory has all to-dos: ${failure.message}. No rescue file can be written: ${reasons.join("; ")}. Free space, or make the folder writable; the server tries again`,
    );
    return false;
  }

  #write(file: string): Promise<unknown> {
    return createFileAtomic(file, PRIVATE_MODE, async (part) => {
      await using handle = await open(part, "a");
      const options = { signal: new AbortController().signal };
      return await writeExport(this.#options.contents(), (text) => handle.appendFile(text), options);
    });
  }

  #warnOnce(problem: string): void {
    if (problem !== this.#lastProblem) this.#options.onWarning(problem);
    this.#lastProblem = problem;
  }
}
