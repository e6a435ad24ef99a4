import type { Exchange } from "./exchange.ts";
import { idOf, parseJson, todoOf } from "./json.ts";
import type { TodoEvent } from "./types.ts";

/** A message of an event stream. */
export interface Message {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** Yields the messages of an event stream that have an id (WHATWG HTML §9.2.6). Skips an incomplete last one. */
export async function* readMessages({ read }: Exchange): AsyncGenerator<Message, void, undefined> {
  let rest = "";
  let fields: Record<string, string> = {};
  while (true) {
    const piece = await read();
    if (piece === undefined) return;
    // A carriage return at the very end may be the first half of a line break.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (line !== "") fields[name] = value;
      else {
        const { id, event = "message", data } = fields;
        fields = {};
        if (id !== undefined && data !== undefined) yield { id, type: event, data };
      }
    }
  }
}

/** Returns the event of a message, or undefined for a type that only a newer service has. */
export function parseEvent({
  id: position,
  type,
  data,
}: Message): Exclude<TodoEvent, { type: "disconnected" }> | undefined {
  switch (type) {
    case "position":
      return { type: "connected", position };
    case "resync":
      return { type, position };
    case "created":
    case "updated":
      return { type, position, todo: todoOf(parseJson(data)) };
    case "deleted":
      return { type, position, id: idOf(parseJson(data)) };
    default:
      return undefined;
  }
}

/** Returns whether an event is at or before the last position. Positions, `<epoch>-<n>`, count within their epoch. */
export function isDuplicate({ type, position }: { type: string; position: string }, last = ""): boolean {
  const [, epoch, n] = /(.*)-(\d+)/.exec(position) ?? [];
  const [, lastEpoch, lastN] = /(.*)-(\d+)/.exec(last) ?? [];
  return type !== "resync" && epoch === lastEpoch && Number(n) <= Number(lastN);
}
