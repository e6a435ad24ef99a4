import { ServiceError } from "../../error.ts";
import { formatPosition, type Position, type TodoEvent, type TodoStore, todoText } from "../../todo.ts";
import type { RevocationCheck } from "../auth/revocation.ts";
import type { Context } from "../context.ts";
import { IDLE_SECONDS, OVERLOADED } from "../limits.ts";
import { isLoopback, networkPrefix } from "../policy/address.ts";
import type { ConnectionInfo } from "../policy/connection.ts";
import { originalTag, readParameter } from "../request.ts";
import { respond } from "../response.ts";
import type { Handler } from "../route.ts";
import type { Bytes } from "../stream.ts";

/** After this time without reading even a heartbeat, a subscriber counts as disconnected. */
const IDLE_TIMEOUT_SECONDS = 120;
/** The idle timeout after the shutdown has ended a stream, so that slow subscribers do not delay the shutdown. */
const CLOSE_TIMEOUT_SECONDS = 1;

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
  /** The network of each open stream, if it is limited, by the function that ends the stream. */
  const open = new Map<() => void, string | undefined>();
  let ended = false;
  const logFull = limiter.topic((fields) => log.warn(fields, "too many subscribers"));
  const logNetworkFull = limiter.topic((fields) => log.warn(fields, "too many subscribers from one network"));
  const logIgnoredHeaders = limiter.topic((fields) => log.warn(fields, FORWARDING_IGNORED));
  const logError = limiter.topic((fields) => log.error(fields, "event stream aborted"));
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
    };
    const { body, end } = openStream(start, position, context, onError, onEnd);
    const endStream = (idleSeconds: number): void => {
      server.timeout(request, idleSeconds);
      end();
    };
    const closeStream = (): void => endStream(CLOSE_TIMEOUT_SECONDS);
    open.set(closeStream, network);
    server.timeout(request, IDLE_TIMEOUT_SECONDS);
    if (identity !== undefined) stopWatching = revocation.watch(identity, () => endStream(IDLE_SECONDS));
    if (ended) closeStream();
    return respond(200, HEADERS, body);
  };

  /** Throws `overloaded` if the limit of open streams is reached, in total or by this network. */
  function requireCapacity({ address, forwarding }: ConnectionInfo, network: string | undefined): void {
    const isFull = open.size >= maxSubscribers;
    const ofNetwork = open
      .values()
      .filter((other) => other === network)
      .toArray().length;
    if (!isFull && (network === undefined || ofNetwork < maxPerNetwork)) return;
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
      for (const closeStream of open.keys()) closeStream();
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
    "the id of an event or the Todo-Position of a list",
  );
  const lastEventId = headers.get("last-event-id");
  if (lastEventId) return parsePosition(lastEventId) ?? "unknown";
  return since ?? "latest";
}

const POSITION = /^([\w.~-]+)-(\d+)$/;

function parsePosition(text: string): Position | undefined {
  const [, epoch, sequence] = POSITION.exec(originalTag(text)) ?? [];
  return epoch === undefined ? undefined : { epoch, sequence: Number(sequence) };
}

/** Opens the event stream of one subscriber. After `end`, it sends what it has already read. Calls `onEnd` once. */
function openStream(
  start: Start,
  latest: Position,
  { store, limits }: Context,
  onError: (error: unknown) => void,
  onEnd: () => void,
) {
  const ending = new AbortController();
  const { signal } = ending;
  const pieces = readPieces(start, latest, store, signal);
  let heartbeat: NodeJS.Timeout | undefined;
  const body = new ReadableStream<Bytes>(
    {
      start(controller) {
        heartbeat = setInterval(() => {
          // A subscriber that does not read gets no further heartbeats.
          if (controller.desiredSize === 0) controller.enqueue(COMMENT);
        }, limits.heartbeatMs);
      },
      async pull(controller) {
        try {
          const { value, done } = await pieces.next();
          if (done !== true) return controller.enqueue(value);
        } catch (error) {
          if (!signal.aborted) onError(error);
        }
        end();
        controller.close();
      },
      async cancel() {
        end();
        await pieces.return();
      },
    },
    { highWaterMark: 0 },
  );
  return { body, end };

  function end(): void {
    if (signal.aborted) return;
    ending.abort();
    clearInterval(heartbeat);
    onEnd();
  }
}

/** Yields what `start` requires, then every change until the events of the store end. */
async function* readPieces(
  start: Start,
  latest: Position,
  store: TodoStore,
  signal: AbortSignal,
): AsyncGenerator<Bytes, void, undefined> {
  let position = latest;
  if (start === "latest") {
    // The data is unused, but Firefox and WebKit ignore the id of an event without data.
    yield encode("position", position, "{}");
  } else {
    if (start !== "unknown") {
      // The runtime sends the head of a response with the first piece of its body.
      yield COMMENT;
      let isKnown = false;
      for await (const batch of store.events(start, signal)) {
        isKnown = true;
        yield encodeBatch(batch);
      }
      if (isKnown || signal.aborted) return;
    }
    position = await store.position();
    yield encode("resync", position, "{}");
  }
  for await (const batch of store.events(position, signal)) yield encodeBatch(batch);
}

const encoder = new TextEncoder();
// Some libraries read a blank line after a comment as an empty message.
const COMMENT = encoder.encode(":\n");

const encodeBatch = (batch: readonly TodoEvent[]): Bytes => Buffer.concat(batch.map(encodeCached));

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
