import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "../failure.ts";
import { formatPosition, type Position, type TodoEvent, type TodoStore } from "../todo.ts";
import type { Log } from "./log.ts";
import { Places, seldom } from "./places.ts";
import { reply } from "./reply.ts";
import type { Handler } from "./route.ts";
import { streamed } from "./stream.ts";

/** So much is read ahead for a reader, and no more: the rest stays in the store's feed until it takes that. */
const AHEAD_BYTES = 64 * 1024;
/** A connection that takes nothing for so long, heartbeats included, has nobody at its other end who reads. */
const QUIET_SECONDS = 120;
/** The same from when the service stops: who does not take the end of a stream must not hold that up. */
const LEAVING_SECONDS = 1;
/** What comes within so long goes out together: a chunk for each event would cost several times as much. */
const TOGETHER_MS = 10;

const HEADERS = {
  "Content-Type": "text/event-stream",
  "Cache-Control": "no-store, no-transform",
  "X-Accel-Buffering": "no",
};

export interface EventOptions {
  readonly store: TodoStore;
  readonly log: Log;
  /** How many streams may be open. */
  readonly maxSubscribers: number;
  /** Milliseconds between two heartbeats. */
  readonly heartbeatMs: number;
  /** Milliseconds of a steady clock. */
  readonly now: () => number;
}

/** The handler of `/api/events` (Server-Sent Events, WHATWG HTML §9.2), and the end of all its streams. */
export function eventHandlers({ store, log, maxSubscribers, heartbeatMs, now }: EventOptions) {
  /** What ends each open stream. */
  const open = new Set<() => void>();
  let ended = false;
  const refused = seldom(
    (times) => log.warn({ readers: open.size, times }, "too many readers of events"),
    now,
  );
  const places = new Places(maxSubscribers, refused);
  const onError = (error: unknown): void => log.error({ err: error }, "events cut off");

  const follow: Handler = async (request, peer) => {
    const start = startOf(request);
    const position = await store.position();
    if (places.areTaken) throw places.refusal();
    const leave = (): void => {
      peer.timeout(request, LEAVING_SECONDS);
      subscription.end();
    };
    const onEnd = (): void => {
      open.delete(leave);
      places.free();
    };
    const subscription = new Subscription({ store, heartbeatMs, onError, onEnd });
    open.add(leave);
    places.take();
    peer.timeout(request, QUIET_SECONDS);
    subscription.run(start, position);
    if (ended) leave();
    return reply(200, HEADERS, streamed(subscription, onError));
  };

  return {
    follow,
    /** How many streams are open. */
    count: (): number => open.size,
    /** Ends every stream, and each to come at once: an EventSource then connects again, here or elsewhere. */
    end: (): void => {
      ended = true;
      for (const leave of open) leave();
    },
  };
}

type Bytes = Uint8Array<ArrayBuffer>;

/** Where a stream starts: after a position, with what comes from now on, or with what to do about a lost one. */
type Start = Position | "now" | "lost";

/** Last-Event-ID wins over `since`: an EventSource that connects again sends it to the URL it was given. */
function startOf({ url, headers }: Request): Start {
  const since = readSince(url);
  const lastEventId = headers.get("last-event-id");
  if (lastEventId) return parsePosition(lastEventId) ?? "lost";
  return since ?? "now";
}

/** Reads `?since=`; throws `invalid_query` for a bad or repeated value. */
function readSince(url: string): Position | undefined {
  const start = url.indexOf("?");
  const values = start < 0 ? [] : new URLSearchParams(url.slice(start)).getAll("since");
  if (values.length === 0) return undefined;
  const since = values.length === 1 ? parsePosition(values[0] ?? "") : undefined;
  if (since !== undefined) return since;
  throw new Failure("invalid_query", {
    detail: "since must be, once, a position: an event's id, or a list's ETag without its quotes.",
  });
}

const POSITION = /^([\w.~-]+)-(\d+)$/;

function parsePosition(text: string): Position | undefined {
  const [, epoch, n] = POSITION.exec(text) ?? [];
  return epoch === undefined ? undefined : { epoch, n: Number(n) };
}

interface SubscriptionOptions {
  readonly store: TodoStore;
  readonly heartbeatMs: number;
  readonly onError: (error: unknown) => void;
  readonly onEnd: () => void;
}

/** The stream of one reader, in pieces: what is there together goes out together. */
class Subscription implements AsyncIterableIterator<Bytes, undefined> {
  readonly #store: TodoStore;
  readonly #onError: (error: unknown) => void;
  readonly #onEnd: () => void;
  readonly #ending = new AbortController();
  readonly #heart: NodeJS.Timeout;
  #ahead: Bytes[] = [];
  #aheadBytes = 0;
  #come = (): void => {};
  #taken = (): void => {};

  constructor({ store, heartbeatMs, onError, onEnd }: SubscriptionOptions) {
    this.#store = store;
    this.#onError = onError;
    this.#onEnd = onEnd;
    this.#heart = setInterval(() => {
      if (this.#aheadBytes === 0) this.#send(COMMENT);
    }, heartbeatMs);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Bytes, undefined>> {
    if (this.#aheadBytes === 0 && !this.#hasEnded) {
      await new Promise<void>((resolve) => {
        this.#come = resolve;
      });
    }
    if (this.#aheadBytes < AHEAD_BYTES && !this.#hasEnded) await sleep(TOGETHER_MS);
    if (this.#aheadBytes === 0) return { done: true, value: undefined };
    const value = Buffer.concat(this.#ahead, this.#aheadBytes);
    this.#ahead = [];
    this.#aheadBytes = 0;
    this.#taken();
    return { done: false, value };
  }

  /** Its reader has gone away. */
  async return(): Promise<IteratorResult<Bytes, undefined>> {
    this.end();
    return { done: true, value: undefined };
  }

  /** Ends after what was read ahead. */
  end(): void {
    if (this.#hasEnded) return;
    this.#ending.abort();
    clearInterval(this.#heart);
    this.#come();
    this.#taken();
    this.#onEnd();
  }

  /** Tells what the start asks for, then every change, until it ends. */
  async run(start: Start, now: Position): Promise<void> {
    try {
      await this.#tell(start, now);
    } catch (error) {
      if (!this.#hasEnded) this.#onError(error);
    }
    this.end();
  }

  async #tell(start: Start, now: Position): Promise<void> {
    if (start === "now") {
      // With data, though nobody needs it: Firefox and WebKit overlook the id of an event that has none.
      this.#send(encode("position", now, "{}"));
      await this.#follow(now);
      return;
    }
    if (start !== "lost") {
      // The head of a response leaves with the first piece of its body.
      this.#send(COMMENT);
      if ((await this.#follow(start)) || this.#hasEnded) return;
    }
    const position = await this.#store.position();
    this.#send(encode("resync", position, "{}"));
    await this.#follow(position);
  }

  /** Tells every change after a position for as long as the store does; whether there was one. */
  async #follow(after: Position): Promise<boolean> {
    let hasTold = false;
    for await (const event of this.#store.events(after, this.#ending.signal)) {
      this.#send(encodedOnce(event));
      hasTold = true;
      if (this.#aheadBytes < AHEAD_BYTES || this.#hasEnded) continue;
      await new Promise<void>((resolve) => {
        this.#taken = resolve;
      });
    }
    return hasTold;
  }

  #send(piece: Bytes): void {
    if (this.#hasEnded) return;
    this.#ahead.push(piece);
    this.#aheadBytes += piece.length;
    this.#come();
  }

  get #hasEnded(): boolean {
    return this.#ending.signal.aborted;
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const COMMENT = encoder.encode(":\n\n");

/** An event as all its readers get it, encoded for the first of them. */
function encodedOnce(event: TodoEvent): Bytes {
  const known = encodedEvents.get(event);
  if (known !== undefined) return known;
  const bytes = encode(event.type, event.position, dataOf(event));
  encodedEvents.set(event, bytes);
  return bytes;
}

const encodedEvents = new WeakMap<TodoEvent, Bytes>();

/** JSON has no line breaks, so that it is one line of data. */
function encode(type: string, position: Position, json: string): Bytes {
  return encoder.encode(`id: ${formatPosition(position)}\nevent: ${type}\ndata: ${json}\n\n`);
}

function dataOf(event: TodoEvent): string {
  if (event.type === "deleted") return `{"id":${event.id}}`;
  return typeof event.json === "string" ? event.json : decoder.decode(event.json);
}
