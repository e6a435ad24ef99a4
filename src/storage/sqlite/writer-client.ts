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
  const start = (...requests: readonly WriterRequest[]) =>
    startThread([{ type: "open", options }, ...requests], onWarning);
  let thread = await start({ type: "check" });
  let restarting: Promise<WriterThread> | undefined;
  const ensureAlive = async (): Promise<WriterThread> => {
    if (!thread.hasExited) return thread;
    restarting ??= start().finally(() => {
      restarting = undefined;
    });
    thread = await restarting;
    return thread;
  };
  return {
    request: async (request) => send(await ensureAlive(), request, onWarning),
    close: async () => {
      if (!thread.hasExited) await thread.request({ type: "close" });
      thread.terminate();
    },
  };
}

/** Starts a thread. Throws if one of its first requests fails. */
async function startThread(
  requests: readonly WriterRequest[],
  onWarning: (message: string) => void,
): Promise<WriterThread> {
  const thread: WriterThread = new WorkerThread(new URL("./writer.worker.ts", import.meta.url));
  try {
    const results = await Promise.all(requests.map((request) => send(thread, request, onWarning)));
    if (results.includes(false)) throw new DamageError("its structure is inconsistent");
  } catch (error) {
    thread.terminate();
    throw error;
  }
  return thread;
}

async function send(
  thread: WriterThread,
  request: WriterRequest,
  onWarning: (message: string) => void,
): Promise<boolean> {
  const { value, warning } = await thread.request(request);
  if (warning !== undefined) onWarning(warning);
  return value;
}
