import { DamageError } from "./damage.ts";
import type { WriterOptions, WriterReply, WriterRequest } from "./writer.worker.ts";

/** The client of the writer thread. */
export interface WriterClient {
  /**
   * Resolves when the request is on disk. Rejects if it was rolled back, or if its outcome is unknown; after a failed
   * fsync and a crash, the next start may still find it. Requests run in the order of the calls.
   */
  readonly request: (request: WriterRequest) => Promise<boolean>;
  /** Resolves with whether `close` may move the log to the database. */
  readonly mayMoveLog: () => Promise<boolean>;
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
  let restarting: Promise<Thread> | undefined;
  const ensureAlive = async (): Promise<Thread> => {
    if (!thread.isDead()) return thread;
    restarting ??= start().finally(() => {
      restarting = undefined;
    });
    thread = await restarting;
    return thread;
  };
  return {
    request: async (request) => (await ensureAlive()).request(request),
    mayMoveLog: async () => {
      if (thread.isDead()) return false;
      // The reason does not matter: the log stays, and the next start checks the store.
      return thread.request({ type: "checkBeforeClose" }).catch(() => false);
    },
    close: async () => {
      if (!thread.isDead()) await thread.request({ type: "close" });
      thread.end();
    },
  };
}

type Thread = Awaited<ReturnType<typeof startThread>>;

/** Starts a thread. Throws if one of its first requests fails. */
async function startThread(requests: readonly WriterRequest[], onWarning: (message: string) => void) {
  const worker = new Worker(new URL("./writer.worker.ts", import.meta.url).href);
  let pendingReplies: PromiseWithResolvers<boolean>[] = [];
  let dead = false;
  worker.onmessage = ({ data }: MessageEvent<WriterReply>) => {
    const reply = pendingReplies.shift();
    if (data.type === "done") {
      reply?.resolve(data.value);
      if (data.warning !== undefined) onWarning(data.warning);
    } else reply?.reject(Object.assign(new Error(data.reason), { code: data.code }));
  };
  const onExit = (reason: string): void => {
    dead = true;
    for (const reply of pendingReplies) reply.reject(new Error(reason));
    pendingReplies = [];
  };
  worker.onerror = ({ message }) => onExit(message);
  worker.addEventListener("close", () => onExit("the writer thread has exited"));
  const request = (request: WriterRequest): Promise<boolean> => {
    const reply = Promise.withResolvers<boolean>();
    pendingReplies.push(reply);
    worker.postMessage(request);
    return reply.promise;
  };
  try {
    const results = await Promise.all(requests.map(request));
    if (results.includes(false)) throw new DamageError("its structure is inconsistent");
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return { request, isDead: () => dead, end: () => worker.terminate() };
}
