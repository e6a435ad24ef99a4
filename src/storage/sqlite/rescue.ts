import { renameSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { errorMessage } from "../../error-message.ts";
import { createFileAtomic } from "../atomic-file.ts";
import { type ExportContents, writeExport } from "../ndjson.ts";
import { PRIVATE_MODE } from "./files.ts";
import { findRescueFiles, rescueTime, restoreCommand } from "./ways-out.ts";

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
  /** Returns a snapshot of everything that the server holds. */
  readonly contents: () => ExportContents;
  /** Returns whether the files of the store are still wrong. Otherwise, a file may lack writes that were acknowledged meanwhile. */
  readonly isNeeded: () => boolean;
  readonly onWarning: (message: string) => void;
}

/** Writes everything that the server holds to a new file beside the store, in the export format. */
export class Rescue {
  readonly #options: RescueOptions;
  #file: string | undefined;
  #lastProblem: string | undefined;

  constructor(options: RescueOptions) {
    this.#options = options;
  }

  /** The file with everything that the server holds; `undefined` while the files of the store are right. */
  get file(): string | undefined {
    return this.#file;
  }

  /** To be called when the files are right: renames the rescue file, because a later start would name it as the best copy. */
  retire(): void {
    const file = this.#file;
    this.#file = undefined;
    this.#lastProblem = undefined;
    if (file === undefined) return;
    this.#options.onWarning(
      `the files of the store are right again: do not restore ${retire(file)}, which lacks later changes`,
    );
  }

  /** Writes the rescue file unless there is one. Returns whether there is one that has everything. */
  async save(failure: Error): Promise<boolean> {
    if (this.#file !== undefined) return true;
    const { path, otherFolder, isNeeded, onWarning } = this.#options;
    const time = new Date().toISOString().replaceAll(/[-:.]/g, "");
    const reasons: string[] = [];
    for (const folder of [dirname(path), otherFolder]) {
      if (folder === undefined) continue;
      const file = join(folder, `${basename(path)}.rescue-${time}.ndjson`);
      try {
        await this.#write(file);
        if (!isNeeded()) {
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
