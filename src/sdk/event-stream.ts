import { abortOnReturn } from "./abort.ts";
import { type Call, interpret, isEventStream, readText, throwProblem } from "./exchange.ts";
import { check, parseId, parseJson, parseTodo } from "./json.ts";
import { delay, isRecoverable, retryDelay } from "./retry.ts";
import type { Transport } from "./transport.ts";
import { type CallOptions, TodoApiError, type TodoEvent } from "./types.ts";

/** A stream that lasted this long was healthy: the next reconnect starts with the shortest delay. */
const STABLE_MS = 5_000;

/** A message of an event stream. */
export interface Message {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/**
 * Returns a function that takes the pieces of an event stream, and returns the messages with an id that each completes
 * (WHATWG HTML §9.2.6).
 */
export function createParser(): (piece: string) => readonly Message[] {
  let rest = "";
  let fields: Record<string, string> = {};
  return (piece) => {
    const messages: Message[] = [];
    // A carriage return at the very end may be the first half of a line break.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (line !== "") {
        const isNextLine = name === "data" && fields.data !== undefined;
        fields[name] = isNextLine ? `${fields.data}\n${value}` : value;
      } else {
        const { id, event = "message", data } = fields;
        fields = {};
        if (id !== undefined && data !== undefined) messages.push({ id, type: event, data });
      }
    }
    return messages;
  };
}

/** Returns the event of a message, or undefined for a type that only a newer service has. */
export function parseEvent({
  id: position,
  type,
  data,
}: Message): Exclude<TodoEvent, { type: "disconnected" }> | undefined {
  if (type === "position") return { type: "connected", position };
  if (type === "resync") return { type, position };
  if (type === "deleted") return { type, position, id: parseId(parseJson(data)) };
  if (type === "created" || type === "updated") return { type, position, todo: parseTodo(parseJson(data)) };
  return undefined;
}

/**
 * Yields every change after a position, and every change of the connection, until the signal aborts. Reconnects after a
 * lost connection. Rejects only when the service rejects the request (a 4xx).
 */
export function readEvents(
  send: Transport["send"],
  options: CallOptions & { readonly since?: string },
): AsyncGenerator<TodoEvent, void, undefined> {
  return abortOnReturn(options.signal, async function* (signal) {
    let position = options.since;
    let isDisconnected = false;
    let attempt = 0;
    while (!signal.aborted) {
      const startedAt = Date.now();
      let error = new TodoApiError("network_error", "the event stream ended");
      try {
        const search = position ? `?since=${encodeURIComponent(position)}` : "";
        const call: Call = { method: "GET", path: `/api/events${search}`, accept: "text/event-stream" };
        const exchange = await send(call, { ...options, signal });
        const { response } = exchange;
        try {
          if (!response.ok) throwProblem(response, await readText(exchange));
          interpret(response, () => check(isEventStream(response)));
          const parse = createParser();
          let isFirst = true;
          for await (const piece of exchange.pieces) {
            isDisconnected = false;
            // Not before the first bytes, because a proxy may send the head and hold back the rest.
            if (isFirst && position !== undefined) yield { type: "connected", position };
            isFirst = false;
            for (const message of parse(piece)) {
              const event = interpret(response, () => parseEvent(message));
              if (event === undefined) continue;
              position = event.position;
              attempt = 0;
              yield event;
            }
          }
        } finally {
          exchange.close();
        }
      } catch (caught) {
        if (signal.aborted) return;
        if (!isRecoverable(caught)) throw caught;
        error = caught;
      }
      if (!isDisconnected) yield { type: "disconnected", error };
      isDisconnected = true;
      if (Date.now() - startedAt > STABLE_MS) attempt = 0;
      await delay(retryDelay(attempt++, error), signal);
    }
  });
}
