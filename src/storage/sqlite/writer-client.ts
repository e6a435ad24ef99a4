import type { WriterReply, WriterRequest } from "./writer.worker.ts";

/** The client of the writer thread. */
export interface WriterClient {
  /**
   * Resolves when the request is on disk. Rejects if it was rolled back; after a failed fsync and a crash, the next
   * start may still find it. Requests run in the order of the calls.
   */
  readonly request: (request: WriterRequest) => Promise<boolean>;
  readonly close: () => Promise<void>;
}

/** Starts the writer thread. Starts it again when it has exited. */
export async function startWriter(path: string, maxEvents: number): Promise<WriterClient> {
  const start = () => startThread({ type: "open", path, maxEvents });
  let thread = await start();
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
    close: async () => {
      if (!thread.isDead()) await thread.request({ type: "close" });
      thread.end();
    },
  };
}

type Thread = Awaited<ReturnType<typeof startThread>>;

async function startThread(open: WriterRequest) {
  const worker = new Worker(new URL("./writer.worker.ts", import.meta.url).href);
  let pendingReplies: PromiseWithResolvers<boolean>[] = [];
  let dead = false;
  worker.onmessage = ({ data }: MessageEvent<WriterReply>) => {
    const reply = pendingReplies.shift();
    if (data.type === "done") reply?.resolve(data.value);
    else reply?.reject(new Error(data.reason));
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
    await request(open);
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return { request, isDead: () => dead, end: () => worker.terminate() };
}
