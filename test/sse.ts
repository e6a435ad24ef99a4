/** An event as an EventSource dispatches it. Events without data are not dispatched. */
export interface SseEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** Parses the service's event streams from chunks of any size. Throws for anything but its comments and complete events. */
export class SseParser {
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  #text = "";
  #event = "";
  comments = 0;

  /** Takes the next bytes. Returns the events that they complete. */
  take(bytes: Uint8Array): SseEvent[] {
    const lines = (this.#text + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#text = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line));
  }

  end(): void {
    if (this.#text !== "" || this.#event !== "") throw new Error("the stream ends inside an event");
  }

  #line(line: string): SseEvent[] {
    if (line.startsWith(":")) {
      this.comments++;
      return [];
    }
    this.#event += `${line}\n`;
    if (line !== "") return [];
    const [, id, type, data] = /^id: (\S+)\nevent: (\w+)\ndata: (.*)\n\n$/.exec(this.#event) ?? [];
    if (id === undefined || type === undefined || data === undefined)
      throw new Error(`not an event of the service: ${JSON.stringify(this.#event)}`);
    this.#event = "";
    return [{ id, type, data }];
  }
}

/** An event stream, followed as an EventSource does. */
export interface EventStream extends AsyncDisposable {
  readonly response: Response;
  /** The id to reconnect with: the id of the last event that was taken. */
  readonly lastId: () => string;
  readonly comments: () => number;
  /** Returns exactly this many next events. Rejects if the stream ends before that. */
  readonly take: (count: number) => Promise<SseEvent[]>;
  /** Returns every event up to the end of the stream. Rejects if the stream is aborted. */
  readonly rest: () => Promise<SseEvent[]>;
  readonly close: () => Promise<void>;
}

export interface FollowOptions {
  readonly since?: string;
  readonly lastEventId?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Waiting for the next bytes rejects after this time, which is shorter than the timeout of a test. */
const PATIENCE_MS = 60_000;

export async function follow(url: string, options: FollowOptions = {}): Promise<EventStream> {
  const { since, lastEventId, headers } = options;
  const leaving = new AbortController();
  const query = since === undefined ? "" : `?since=${encodeURIComponent(since)}`;
  const asked = fetch(`${url}/api/events${query}`, {
    headers: {
      Accept: "text/event-stream",
      ...(lastEventId !== undefined && { "Last-Event-ID": lastEventId }),
      ...headers,
    },
    signal: leaving.signal,
  });
  const response = await soon(asked, () => "the head of a stream of events");
  if (response.status !== 200 || response.body === null) throw new Error(`no stream: ${response.status}`);
  return stream(response, response.body, leaving);
}

export async function soon<T>(coming: Promise<T>, what: () => string, ms = PATIENCE_MS): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`waited ${ms / 1000} s for ${what()}`)), ms);
  try {
    return await Promise.race([coming, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function stream(response: Response, body: ReadableStream<Uint8Array>, leaving: AbortController): EventStream {
  const reader = body.getReader();
  const parser = new SseParser();
  const waiting: SseEvent[] = [];
  let lastId = "";

  /** Reads the next chunk. Returns false at the end. */
  const readOn = async (what: string): Promise<boolean> => {
    const { value, done } = await soon(reader.read(), () => `${what}; came: ${waiting.length}`);
    if (value !== undefined) waiting.push(...parser.take(value));
    if (done) parser.end();
    return !done;
  };
  const taken = (count: number): SseEvent[] => {
    const events = waiting.splice(0, count);
    lastId = events.at(-1)?.id ?? lastId;
    return events;
  };
  const close = async (): Promise<void> => {
    leaving.abort();
    await reader.cancel().catch(() => {});
  };
  return {
    response,
    lastId: () => lastId,
    comments: () => parser.comments,
    take: async (count) => {
      while (waiting.length < count) {
        if (!(await readOn(`${count} events`)))
          throw new Error(`the stream ended after ${waiting.length} of ${count} events`);
      }
      return taken(count);
    },
    rest: async () => {
      while (await readOn("the end of a stream"));
      return taken(waiting.length);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
