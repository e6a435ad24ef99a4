/** An event as an EventSource dispatches it. Events without data are not dispatched. */
export interface SseEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/**
 * Parses an event stream (WHATWG HTML §9.2.6) from chunks of any size. Stricter than an EventSource:
 * throws for invalid UTF-8, for an unknown field, and for an event without an id or a type. Like Firefox and WebKit, it
 * ignores the id of an event without data.
 */
export class SseParser {
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  #text = "";
  #fields = new Map<string, string>();
  /** The number of comments so far. */
  comments = 0;

  /** Takes the next bytes. Returns the events that they complete. */
  take(bytes: Uint8Array): SseEvent[] {
    this.#text += this.#decoder.decode(bytes, { stream: true });
    // A carriage return at the end may be the first half of a line break.
    const lines = this.#text.split(/\r\n|\n|\r(?!$)/);
    this.#text = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line));
  }

  /** Throws unless the stream ended between two events. */
  end(): void {
    if (this.#text !== "" || this.#fields.size > 0) throw new Error("the stream ends inside an event");
  }

  #line(line: string): SseEvent[] {
    if (line === "") return this.#dispatch();
    const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === "") {
      this.comments++;
      return [];
    }
    if (!["id", "event", "data"].includes(name) || value.includes("\0"))
      throw new Error(`unknown field: ${JSON.stringify(line)}`);
    if (this.#fields.has(name)) throw new Error(`${name} is there twice`);
    this.#fields.set(name, value);
    return [];
  }

  #dispatch(): SseEvent[] {
    const fields = this.#fields;
    this.#fields = new Map();
    const [id, type, data] = ["id", "event", "data"].map((name) => fields.get(name));
    if (data === undefined) return [];
    if (!id || !type) throw new Error(`an event without id or type: ${data}`);
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
  /** Disconnects. */
  readonly close: () => Promise<void>;
}

export interface FollowOptions {
  readonly since?: string;
  readonly lastEventId?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Waiting for the next bytes rejects after this time, which is shorter than the timeout of a test. */
const PATIENCE_MS = 60_000;

/** Requests the events of the service at `url`. */
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

/** Waits for a promise. Rejects with what it waited for if that takes too long. */
async function soon<T>(coming: Promise<T>, what: () => string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => late.reject(new Error(`waited ${PATIENCE_MS / 1000} s for ${what()}`)),
    PATIENCE_MS,
  );
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
