import type { Position, TodoId } from "../../todo.ts";

/** An event as the stores encode it. */
export type StoredEvent = { readonly position: Position; readonly id: TodoId } & (
  | { readonly type: "created" | "updated"; readonly json: string }
  | { readonly type: "deleted" }
);

const CREATED = "+";
const UPDATED = "=";
const DELETED = "-";
/** The sign of a line with the epoch of the events that follow. */
const EPOCH = "#";

/** Encodes an event as a line: a sign, then the to-do after the event, or the id of a deleted to-do. */
export function encodeEvent(event: StoredEvent): string {
  if (event.type === "deleted") return `${DELETED}${event.id}`;
  return `${event.type === "created" ? CREATED : UPDATED}${event.json}`;
}

/** Returns the created to-dos of encoded events. Faster than decoding them. */
export const createdTodos = (lines: string): string[] =>
  lines.split("\n").flatMap((line) => (line.startsWith(CREATED) ? line.slice(CREATED.length) : []));

/**
 * Decodes lines of consecutive events, the last of which has the given position. Other lines, with a sign and an epoch, change
 * the epoch of the events that follow. Throws for an invalid line.
 */
export function decodeEvents(text: string, last: Position): StoredEvent[] {
  const lines = text.split("\n");
  let { epoch } = last;
  let sequence = last.sequence - lines.filter((line) => !line.startsWith(EPOCH)).length;
  const events: StoredEvent[] = [];
  for (const line of lines) {
    if (line.startsWith(EPOCH)) epoch = line.slice(EPOCH.length);
    else events.push(decodeEvent(line, { epoch, sequence: ++sequence }));
  }
  return events;
}

function decodeEvent(line: string, position: Position): StoredEvent {
  const [, sign, digits] = /^([+=-])(?:\{"id":)?(\d+)/.exec(line) ?? [];
  if (digits === undefined) throw new Error(`the event at position ${position.sequence} is invalid`);
  const id = BigInt(digits);
  if (sign === DELETED) return { type: "deleted", position, id };
  return { type: sign === CREATED ? "created" : "updated", position, id, json: line.slice(1) };
}
