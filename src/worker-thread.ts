import { errorMessage, getErrno } from "./error-message.ts";

interface WorkerRequest<Request> {
  readonly id: number;
  readonly request: Request;
}

type WorkerReply<Result> =
  | { readonly id: number; readonly result: Result }
  | { readonly id: number; readonly error: { readonly message: string; readonly code: unknown } };

/** A thread that runs a module and replies to requests. It keeps the process running only while requests are pending. */
export class WorkerThread<Request, Result> {
  readonly #worker: Worker;
  /** The requests without a reply, the oldest first. */
  readonly #pending = new Map<number, PromiseWithResolvers<Result> & { readonly since: number }>();
  #lastId = 0;
  #hasExited = false;

  /** @param module the URL of a module that calls `serveRequests` */
  constructor(module: URL) {
    this.#worker = new Worker(module.href);
    this.#worker.unref();
    this.#worker.onmessage = ({ data }: MessageEvent<WorkerReply<Result>>) => {
      const reply = this.#pending.get(data.id);
      this.#pending.delete(data.id);
      if (this.#pending.size === 0) this.#worker.unref();
      if ("result" in data) reply?.resolve(data.result);
      else reply?.reject(Object.assign(new Error(data.error.message), { code: data.error.code }));
    };
    this.#worker.onerror = ({ message }) => this.#onExit(message);
    // A thread can exit without an error event.
    this.#worker.addEventListener("close", () => this.#onExit("the worker thread has exited"));
  }

  get hasExited(): boolean {
    return this.#hasExited;
  }

  /** Returns how long the oldest request has waited for its reply, in milliseconds; 0 if none waits. */
  waitingMs(): number {
    const [oldest] = this.#pending.values();
    return oldest === undefined ? 0 : performance.now() - oldest.since;
  }

  /** Rejects with what the request threw (its message and `code`), or if the thread exits. */
  request(request: Request): Promise<Result> {
    if (this.#hasExited) return Promise.reject(new Error("the worker thread has exited"));
    const reply = { ...Promise.withResolvers<Result>(), since: performance.now() };
    const id = ++this.#lastId;
    this.#pending.set(id, reply);
    // Without a reference, Bun would poll for the reply.
    this.#worker.ref();
    this.#worker.postMessage({ id, request } satisfies WorkerRequest<Request>);
    return reply.promise;
  }

  terminate(): void {
    this.#worker.terminate();
  }

  #onExit(reason: string): void {
    this.#hasExited = true;
    for (const reply of this.#pending.values()) reply.reject(new Error(reason));
    this.#pending.clear();
  }
}

declare const self: Worker;

/** Replies to the requests of the thread that started this one. Runs a request at once, also while others are pending. */
export function serveRequests<Request, Result>(handle: (request: Request) => Result | Promise<Result>): void {
  self.onmessage = async ({ data: { id, request } }: MessageEvent<WorkerRequest<Request>>) => {
    let reply: WorkerReply<Result>;
    try {
      reply = { id, result: await handle(request) };
    } catch (error) {
      reply = { id, error: { message: errorMessage(error), code: getErrno(error) } };
    }
    self.postMessage(reply);
  };
}
