import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { ServiceError } from "../../error.ts";
import { formatPosition, type Position, type TodoEvent, todoText } from "../../todo.ts";
import type { RevocationCheck } from "../auth/revocation.ts";
import type { Context } from "../context.ts";
import { IDLE_SECONDS, OVERLOADED } from "../limits.ts";
import { isLoopback, networkPrefix } from "../policy/address.ts";
import type { ConnectionInfo } from "../policy/connection.ts";
import { readParameter } from "../query.ts";
import { respond } from "../response.ts";
import type { Handler } from "../route.ts";
import type { Bytes } from "../stream.ts";

/** The maximum number of bytes buffered per subscriber. Later events stay in the store's feed until it reads them. */
const HIGH_WATER_MARK = 64 * 1024;
/** After this time without reading even a heartbeat, a subscriber counts as disconnected. */
const IDLE_TIMEOUT_SECONDS = 120;
/** The idle timeout after the shutdown has ended a stream, so that slow subscribers do not delay the shutdown. */
const CLOSE_TIMEOUT_SECONDS = 1;
/** Events within this time are sent in one chunk, because a chunk per event costs several times as much. */
const COALESCE_MS = 10;

const HEADERS = {
  "Content-Type": "text/event-stream",
  "Cache-Control": "no-store, no-transform",
  "X-Accel-Buffering": "no",
};

export type EventHandlers = ReturnType<typeof createEventHandlers>;

/** Returns the handler of `/api/events` (Server-Sent Events, WHATWG HTML §9.2), a stream count, and a function that ends all streams. */
export function createEventHandlers(context: Context, revocation: RevocationCheck) {
  const { store, log, limiter, getConnectionInfo, limits } = context;
  const { maxSubscribers } = limits;
  const maxPerNetwork = limits.maxSubscribersPerNetwork ?? Math.ceil(maxSubscribers / 4);
  /** A function per open stream that ends it. */
  const open = new Set<() => void>();
  let ended = false;
  const logFull = limiter.topic((fields) => log.warn(fields, "too many subscribers"));
  const logNetworkFull = limiter.topic((fields) => log.warn(fields, "too many subscribers from one network"));
  const logIgnoredHeaders = limiter.topic((fields) => log.warn(fields, FORWARDING_IGNORED));
  const logError = limiter.topic((fields) => log.error(fields, "event stream aborted"));
  /** The number of open streams of each network that is limited. */
  const networks = new Map<string, number>();
  const countStream = (network: string | undefined, change: 1 | -1): void => {
    if (network === undefined) return;
    const count = (networks.get(network) ?? 0) + change;
    if (count > 0) networks.set(network, count);
    else networks.delete(network);
  };
  // Created once, because the stack trace is most of an error's cost.
  const networkFull = new ServiceError("overloaded", {
    detail: `Your network has as many event streams as one network may have (${maxPerNetwork}). Close one, or try later.`,
  });
  const onError = (err: unknown): void => logError("", { err });

  const follow: Handler = async (request, server, identity) => {
    const connection = getConnectionInfo(request, server);
    const network = limitedNetwork(connection);
    const start = parseStart(request);
    const position = await store.position();
    requireCapacity(connection, network);
    let stopWatching = (): void => {};
    const onEnd = (): void => {
      stopWatching();
      open.delete(closeStream);
      countStream(network, -1);
    };
    const { body, end } = openStream(start, position, context, onError, onEnd);
    const endStream = (idleSeconds: number): void => {
      server.timeout(request, idleSeconds);
      end();
    };
    const closeStream = (): void => endStream(CLOSE_TIMEOUT_SECONDS);
    open.add(closeStream);
    countStream(network, 1);
    server.timeout(request, IDLE_TIMEOUT_SECONDS);
    if (identity !== undefined) stopWatching = revocation.watch(identity, () => endStream(IDLE_SECONDS));
    if (ended) closeStream();
    return respond(200, HEADERS, body);
  };

  /** Throws `overloaded` if the limit of open streams is reached, in total or by this network. */
  function requireCapacity({ address, forwarding }: ConnectionInfo, network: string | undefined): void {
    const isFull = open.size >= maxSubscribers;
    if (!isFull && (network === undefined || (networks.get(network) ?? 0) < maxPerNetwork)) return;
    if (forwarding === "ignored") logIgnoredHeaders(address, { address });
    if (isFull || network === undefined) {
      logFull("", { subscribers: open.size });
      throw OVERLOADED;
    }
    logNetworkFull(network, { network });
    throw networkFull;
  }

  return {
    follow,
    /** Returns the number of open streams. */
    count: (): number => open.size,
    /** Ends every stream, and each later one when it begins. An EventSource then reconnects. */
    end: (): void => {
      ended = true;
      for (const closeStream of open) closeStream();
    },
  };
}

const FORWARDING_IGNORED =
  "rejected a subscriber with forwarding headers from an unlisted address: if that is your proxy, list it in TODO_TRUSTED_PROXY";

/** Returns the network to limit, or `undefined` for loopback, unless the request comes through a trusted proxy there. */
const limitedNetwork = ({ address, forwarding }: ConnectionInfo): string | undefined =>
  isLoopback(address) && forwarding !== "used" ? undefined : networkPrefix(address);

/** Where a stream starts: after a position, at the latest event, or with `resync` for an unknown position. */
type Start = Position | "latest" | "unknown";

/** Returns the start of a stream. Last-Event-ID wins over `since`, because an EventSource reconnects to the same URL. */
function parseStart({ url, headers }: Request): Start {
  const start = url.indexOf("?");
  const query = new URLSearchParams(start < 0 ? "" : url.slice(start));
  const since = readParameter(
    query,
    "since",
    parsePosition,
    "an event's id or a list's ETag without its quotes",
  );
  const lastEventId = headers.get("last-event-id");
  if (lastEventId) return parsePosition(lastEventId) ?? "unknown";
  return since ?? "latest";
}

const POSITION = /^([\w.~-]+)-(\d+)$/;

function parsePosition(text: string): Position | undefined {
  const [, epoch, sequence] = POSITION.exec(text) ?? [];
  return epoch === undefined ? undefined : { epoch, sequence: Number(sequence) };
}

/** Opens the event stream of one subscriber, in chunks of all pieces that are ready. Its `end` sends the buffered bytes first. Calls `onEnd` once. */
function openStream(
  start: Start,
  latest: Position,
  { store, limits }: Context,
  onError: (error: unknown) => void,
  onEnd: () => void,
) {
  const ending = new AbortController();
  const { signal } = ending;
  let buffer: Bytes[] = [];
  let bufferedBytes = 0;
  let onData = (): void => {};
  let onDrain = (): void => {};
  const heartbeat = setInterval(() => {
    if (bufferedBytes === 0) send(COMMENT);
  }, limits.heartbeatMs);
  replay()
    .catch((error) => {
      if (!signal.aborted) onError(error);
    })
    .finally(end);
  const body = new ReadableStream<Bytes>(
    {
      async pull(controller) {
        if (bufferedBytes === 0 && !signal.aborted) {
          await new Promise<void>((resolve) => {
            onData = resolve;
          });
        }
        // At least one turn of the event loop, so that other requests run in between.
        await (bufferedBytes < HIGH_WATER_MARK && !signal.aborted ? sleep(COALESCE_MS) : turn());
        if (bufferedBytes === 0) return controller.close();
        controller.enqueue(Buffer.concat(buffer, bufferedBytes));
        buffer = [];
        bufferedBytes = 0;
        onDrain();
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
  return { body, end };

  function end(): void {
    if (signal.aborted) return;
    ending.abort();
    clearInterval(heartbeat);
    onData();
    onDrain();
    onEnd();
  }

  /** Sends what `start` requires, then every change until the stream ends. */
  async function replay(): Promise<void> {
    if (start === "latest") {
      // The data is unused, but Firefox and WebKit ignore the id of an event without data.
      send(encode("position", latest, "{}"));
      await sendAfter(latest);
      return;
    }
    if (start !== "unknown") {
      // The runtime sends the head of a response with the first piece of its body.
      send(COMMENT);
      if ((await sendAfter(start)) || signal.aborted) return;
    }
    const position = await store.position();
    send(encode("resync", position, "{}"));
    await sendAfter(position);
  }

  /** Sends every change after a position until the store's iterator ends. Returns whether it sent any. */
  async function sendAfter(after: Position): Promise<boolean> {
    let hasSent = false;
    for await (const event of store.events(after, signal)) {
      send(encodeCached(event));
      hasSent = true;
      if (bufferedBytes < HIGH_WATER_MARK || signal.aborted) continue;
      await new Promise<void>((resolve) => {
        onDrain = resolve;
      });
    }
    return hasSent;
  }

  function send(piece: Bytes): void {
    if (signal.aborted) return;
    buffer.push(piece);
    bufferedBytes += piece.length;
    onData();
  }
}

const encoder = new TextEncoder();
// Some libraries read a blank line after a comment as an empty message.
const COMMENT = encoder.encode(":\n");

/** Returns the encoded event. It is encoded for the first subscriber only. */
function encodeCached(event: TodoEvent): Bytes {
  const known = encodedEvents.get(event);
  if (known !== undefined) return known;
  const bytes = encode(event.type, event.position, formatData(event));
  encodedEvents.set(event, bytes);
  return bytes;
}

const encodedEvents = new WeakMap<TodoEvent, Bytes>();

/** Returns one event. Its data is one line, because the JSON has no line breaks. */
function encode(type: string, position: Position, json: string): Bytes {
  return encoder.encode(`id: ${formatPosition(position)}\nevent: ${type}\ndata: ${json}\n\n`);
}

const formatData = (event: TodoEvent): string =>
  event.type === "deleted" ? `{"id":${event.id}}` : todoText(event.json);
