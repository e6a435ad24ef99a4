import type { StoredKey } from "../../credential/key.ts";
import { WorkerThread } from "../../worker-thread.ts";
import { DamageError } from "./errors.ts";
import type { WriterOptions, WriterReply, WriterRequest } from "./writer.worker.ts";

type WriterThread = WorkerThread<WriterRequest, WriterReply>;

/** The client of the writer thread. */
export interface WriterClient {
  /**
   * Resolves when the request is on disk. Rejects if it was rolled back, or if its outcome is unknown; after a failed
   * fsync and a crash, the next start may still find it. Requests run in the order of the calls.
   */
  readonly request: (request: WriterRequest) => Promise<boolean>;
  /** Returns how long the oldest request has waited for its reply, in milliseconds. */
  readonly waitingMs: () => number;
  /** Calls a function with the API keys whenever they have changed, before the request that noticed it resolves. */
  readonly onKeys: (update: (keys: readonly StoredKey[]) => void) => void;
  /** Closes the file. Without a successful `checkBeforeClose`, its WAL stays as it is. */
  readonly close: () => Promise<void>;
}

/**
 * Starts the writer thread, which first checks the structure of the file. Throws a DamageError if it is damaged. Starts
 * the thread again when it has exited.
 */
export async function startWriter(
  options: WriterOptions,
  onWarning: (message: string) => void,
): Promise<WriterClient> {
  let lastWarning: string | undefined;
  let updateKeys: (keys: readonly StoredKey[]) => void = () => {};
  const send = async (to: WriterThread, request: WriterRequest): Promise<boolean> => {
    const { value, warning, keys } = await to.request(request);
    if (keys !== undefined) {
      updateKeys(keys.stored);
      // If it fails, the thread has exited, and confirms the keys when it has started again.
      send(to, { type: "confirmKeys", transactions: keys.transactions }).catch(() => {});
    }
    if (warning !== undefined && warning !== lastWarning) onWarning(warning);
    lastWarning = warning;
    return value;
  };
  const start = async (...requests: readonly WriterRequest[]): Promise<WriterThread> => {
    const started: WriterThread = new WorkerThread(new URL("./writer.worker.ts", import.meta.url));
    try {
      const results = await Promise.all(requests.map((request) => send(started, request)));
      if (results.includes(false)) throw new DamageError("its structure is inconsistent");
      return started;
    } catch (error) {
      started.terminate();
      throw error;
    }
  };
  const open: WriterRequest = { type: "open", options };
  let thread = await start(open, { type: "check" });
  let restarting: Promise<WriterThread> | undefined;
  const ensureAlive = async (): Promise<WriterThread> => {
    if (!thread.hasExited) return thread;
    restarting ??= start(open).finally(() => {
      restarting = undefined;
    });
    thread = await restarting;
    return thread;
  };
  return {
    request: async (request) => send(await ensureAlive(), request),
    waitingMs: () => thread.waitingMs(),
    onKeys: (update) => {
      updateKeys = update;
    },
    close: async () => {
      try {
        await send(await ensureAlive(), { type: "close" });
      } finally {
        thread.terminate();
      }
    },
  };
}
