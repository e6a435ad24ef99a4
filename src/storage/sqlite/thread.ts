import type { WriterReply, WriterRequest } from "./writer.ts";

/** The writer of a file, in a thread of its own. */
export interface WriterThread {
  /**
   * Resolves when the request is on disk; rejects when nobody sees anything of it, though after a failed fsync and
   * then a crash the next start may find it. In the order of the calls.
   */
  readonly ask: (request: WriterRequest) => Promise<boolean>;
  readonly close: () => Promise<void>;
}

/** Starts the writer, and again when it has died of something other than a failed request. */
export async function startWriter(path: string, maxEvents: number): Promise<WriterThread> {
  const start = () => startThread({ type: "open", path, maxEvents });
  let thread = await start();
  let restarting: Promise<Thread> | undefined;
  const living = async (): Promise<Thread> => {
    if (!thread.isDead()) return thread;
    restarting ??= start().finally(() => {
      restarting = undefined;
    });
    thread = await restarting;
    return thread;
  };
  return {
    ask: async (request) => (await living()).ask(request),
    close: async () => {
      if (!thread.isDead()) await thread.ask({ type: "close" });
      thread.end();
    },
  };
}

type Thread = Awaited<ReturnType<typeof startThread>>;

async function startThread(open: WriterRequest) {
  const worker = new Worker(new URL("./writer.ts", import.meta.url).href);
  let waiting: PromiseWithResolvers<boolean>[] = [];
  let dead = false;
  worker.onmessage = ({ data }: MessageEvent<WriterReply>) => {
    const asked = waiting.shift();
    if (data.type === "done") asked?.resolve(data.value);
    else asked?.reject(new Error(data.reason));
  };
  const die = (reason: string): void => {
    dead = true;
    for (const asked of waiting) asked.reject(new Error(reason));
    waiting = [];
  };
  worker.onerror = ({ message }) => die(message);
  worker.addEventListener("close", () => die("the thread that writes has ended"));
  const ask = (request: WriterRequest): Promise<boolean> => {
    const asked = Promise.withResolvers<boolean>();
    waiting.push(asked);
    worker.postMessage(request);
    return asked.promise;
  };
  try {
    await ask(open);
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return { ask, isDead: () => dead, end: () => worker.terminate() };
}
