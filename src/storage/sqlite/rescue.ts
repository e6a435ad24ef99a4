import { renameSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorMessage, toError } from "../../error-message.ts";
import { createFileAtomic } from "../atomic-file.ts";
import { type ExportContents, writeExport } from "../ndjson.ts";
import { findRescueFiles, rescueTime, restoreCommand } from "./errors.ts";
import { PRIVATE_MODE } from "./files.ts";

const CHECK_INTERVAL_MS = 1000;
const ATTEMPTS_AT_END = 5;

/** Renames the rescue files of a store that has started without them, because later messages would name them as the best copy. */
export function retireRescueFiles(path: string, onWarning: (message: string) => void): void {
  for (const file of findRescueFiles(path))
    onWarning(
      `this start does not need ${file}, which has what a server held at ${rescueTime(file)}: it is now ${retire(file)}; restore it only if to-dos are missing`,
    );
}

/** Returns the new name of a rescue file, or the old one if it cannot be renamed. */
function retire(file: string): string {
  const old = `${file}.old`;
  try {
    renameSync(file, old);
    return old;
  } catch {
    // The caller names the file in a warning.
    return file;
  }
}

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
  #running: Promise<unknown> | undefined;
  /** Whether the files failed their last check. */
  #hasFailed = false;
  #file: string | undefined;
  /** Counts the acknowledged writes, because a file that is written meanwhile may lack them. */
  #writes = 0;
  #lastProblem: string | undefined;
  #isClosed = false;

  constructor(options: RescueOptions) {
    this.#options = options;
    this.#schedule();
  }

  /** The file with everything that the server holds; `undefined` while the files of the store are right. */
  get file(): string | undefined {
    return this.#file;
  }

  /** To be called after each acknowledged write, before which the files were checked. */
  writeSucceeded(): void {
    this.#writes++;
    this.#recovered();
  }

  /**
   * Ends the checks, and closes the files. If they are wrong, the server exits only with a rescue file, or after some attempts;
   * then throws an Error.
   * @param closeFiles rejects if the files are wrong; resolves to false if they were, but SQLite has saved everything
   */
  async close(closeFiles: () => Promise<boolean>): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
    let failure: Error;
    try {
      // Otherwise, a rescue file stays, because the operator has been told to use it.
      if (await closeFiles()) this.#recovered();
      return;
    } catch (error) {
      failure = toError(error);
    }
    for (let attempt = 1; !(await this.#save(failure)); attempt++) {
      if (attempt === ATTEMPTS_AT_END)
        throw new Error(
          `no rescue file could be written, so the to-dos that only memory had are lost: ${failure.message}`,
        );
      await Bun.sleep(CHECK_INTERVAL_MS);
    }
  }

  #schedule(): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, CHECK_INTERVAL_MS).unref();
  }

  async #run(): Promise<void> {
    const failure = await this.#findFailure();
    if (failure === undefined) this.#recovered();
    else if (!this.#hasFailed) this.#options.onFailure();
    else await this.#save(failure);
    this.#hasFailed = failure !== undefined;
    this.#schedule();
  }

  #findFailure(): Promise<Error | undefined> {
    return this.#options.check().then(() => undefined, toError);
  }

  /** Renames the rescue file, because a later start would name it as the best copy. */
  #recovered(): void {
    const file = this.#file;
    this.#file = undefined;
    this.#hasFailed = false;
    this.#lastProblem = undefined;
    if (file === undefined) return;
    this.#options.onWarning(
      `the files of the store are right again: do not restore ${retire(file)}, which lacks later changes`,
    );
  }

  /** Writes the rescue file unless there is one. Returns whether there is one that has everything. */
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
        if (writes !== this.#writes) {
          rmSync(file);
          return false;
        }
      } catch (error) {
        reasons.push(errorMessage(error));
        continue;
      }
      this.#file = file;
      onWarning(
        `${failure.message}. Put the right files back. If you cannot, stop the server, run ${restoreCommand(file, path)}, and start the server: that file has everything that the server holds`,
      );
      return true;
    }
    const problem = `do not stop the server, because only its memory has all to-dos: ${failure.message}. No rescue file can be written: ${reasons.join("; ")}. Put the right files back, free space, or create the folder and make it writable; the server tries again. Meanwhile, save the list with curl SERVER/api/todos > todos.json`;
    // The name of the file has the time of the attempt.
    const withoutTime = problem.replaceAll(time, "");
    if (withoutTime !== this.#lastProblem) onWarning(problem);
    this.#lastProblem = withoutTime;
    return false;
  }

  #write(file: string): Promise<unknown> {
    return createFileAtomic(file, PRIVATE_MODE, async (part) => {
      await using handle = await open(part, "a");
      const options = { signal: new AbortController().signal };
      return await writeExport(this.#options.contents(), (text) => handle.appendFile(text), options);
    });
  }
}
