import { basename } from "node:path";
import { ServiceError } from "../../error.ts";
import { WriteHealth } from "../write-health.ts";
import { Rescue, type RescueOptions } from "./rescue.ts";
import type { WriterClient } from "./writer-client.ts";

const CHECK_INTERVAL_MS = 1000;
/** `/readyz` fails while the writer has not answered for longer than this. */
const SLOW_MS = 5000;
const RESCUES_AT_END = 5;

/**
 * The health of a store's files, the only place that knows it. They are right; or suspect after a check has failed; or wrong
 * after another one, and then there is a rescue file as soon as one can be written. The writer thread rejects writes until the
 * files are right again. A file that was moved away may be back at the second check.
 */
export class FileHealth {
  readonly #writer: WriterClient;
  readonly #rescue: Rescue;
  readonly #writes: WriteHealth;
  #files: "right" | "suspect" | "wrong" = "right";
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | undefined;

  constructor(writer: WriterClient, rescue: Omit<RescueOptions, "isNeeded">) {
    this.#writer = writer;
    this.#rescue = new Rescue({ ...rescue, isNeeded: () => this.#files === "wrong" });
    this.#writes = new WriteHealth(() => this.#testWrites());
    this.#schedule();
  }

  /** The file with everything that the server holds, while the files are wrong. */
  get rescueFile(): string | undefined {
    return this.#rescue.file;
  }

  /** To be called after each acknowledged write. */
  writeSucceeded(): void {
    this.#writes.succeeded();
    this.#areRight();
  }

  writeFailed(): void {
    this.#writes.failed();
  }

  /**
   * Returns undefined if the last write and the last check of the files succeeded. Otherwise, tests whether writes succeed now.
   * Rejects with `store_unavailable` while they do not, or while the disk does not answer.
   */
  checkWrites(): Promise<void> | undefined {
    if (this.#writer.waitingMs() > SLOW_MS) return Promise.reject(tooSlow());
    const test = this.#writes.run();
    return test && Promise.race([test, failAfter(SLOW_MS)]);
  }

  /**
   * Ends the checks, and closes the files. If they are wrong, the server exits only with a rescue file, or after some attempts;
   * then throws an Error. Throws an Error, too, if they are right, but cannot be closed.
   */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#checking;
    const failure = await this.#findFailure();
    try {
      await this.#writer.close(failure === undefined);
    } catch (error) {
      // If the files are wrong, this is only another sign of it.
      if (failure === undefined) throw error;
    }
    if (failure === undefined) return;
    this.#files = "wrong";
    for (let attempt = 1; !(await this.#rescue.save(failure)); attempt++) {
      if (attempt === RESCUES_AT_END)
        throw new Error(
          `no rescue file could be written, so the to-dos that only memory had are lost: ${failure.message}`,
        );
      await Bun.sleep(CHECK_INTERVAL_MS);
    }
  }

  /** Returns why the files are wrong; undefined if they are right. */
  async #findFailure(): Promise<Error | undefined> {
    try {
      await this.#writer.request({ type: "checkFiles" });
      this.#areRight();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  #schedule(): void {
    this.#timer = setTimeout(async () => {
      this.#checking = this.#check();
      await this.#checking;
      if (this.#timer !== undefined) this.#schedule();
    }, CHECK_INTERVAL_MS).unref();
  }

  async #check(): Promise<void> {
    const failure = await this.#findFailure();
    if (failure === undefined) return;
    this.#writes.failed();
    if (this.#files === "right") {
      this.#files = "suspect";
      return;
    }
    this.#files = "wrong";
    await this.#rescue.save(failure);
  }

  #areRight(): void {
    if (this.#files === "right") return;
    this.#files = "right";
    this.#rescue.retire();
  }

  async #testWrites(): Promise<void> {
    try {
      await this.#writer.request({ type: "checkWrites" });
    } catch (cause) {
      const { file } = this.#rescue;
      const detail =
        file && `The files of the store are wrong. ${basename(file)} has everything that the server holds.`;
      throw new ServiceError("store_unavailable", { cause, ...(detail && { detail }) });
    }
  }
}

const tooSlow = (): ServiceError =>
  new ServiceError("store_unavailable", {
    cause: new Error(`the disk has not answered for ${SLOW_MS / 1000} seconds`),
  });

const failAfter = (ms: number): Promise<never> =>
  new Promise((_, reject) => {
    setTimeout(() => reject(tooSlow()), ms).unref();
  });
