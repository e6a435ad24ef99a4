import { type Position, type TodoEvent, todoText } from "../../todo.ts";

const CREATED = "+";
const UPDATED = "=";
const DELETED = "-";
/** The sign of a line with the epoch of the events that follow. */
const EPOCH = "#";

/** Encodes an event as a line: a sign, then the to-do after the event, or the id of a deleted to-do. */
export function encodeEvent(event: TodoEvent): string {
  if (event.type === "deleted") return `${DELETED}${event.id}`;
  return `${event.type === "created" ? CREATED : UPDATED}${todoText(event.json)}`;
}

/** Returns the to-do of an encoded event if the event created it. Faster than decoding the event. */
export const createdTodo = (line: string): string | undefined =>
  line.startsWith(CREATED) ? line.slice(CREATED.length) : undefined;

/**
 * Decodes lines of consecutive events, the last of which has the given position. Other lines, with a sign and an epoch, change
 * the epoch of the events that follow. Throws for an invalid line.
 */
export function decodeEvents(text: string, last: Position): TodoEvent[] {
  const lines = text.split("\n");
  let { epoch } = last;
  let sequence = last.sequence - lines.filter((line) => !line.startsWith(EPOCH)).length;
  const events: TodoEvent[] = [];
  for (const line of lines) {
    if (line.startsWith(EPOCH)) epoch = line.slice(EPOCH.length);
    else events.push(decodeEvent(line, { epoch, sequence: ++sequence }));
  }
  return events;
}

/** Decodes a line that `encodeEvent` returned. Throws for another one. */
export function decodeEvent(line: string, position: Position): TodoEvent {
  const [, sign, digits] = /^([+=-])(?:\{"id":)?(\d+)/.exec(line) ?? [];
  if (digits === undefined) throw new Error(`the event at position ${position.sequence} is invalid`);
  const id = BigInt(digits);
  if (sign === DELETED) return { type: "deleted", position, id };
  return { type: sign === CREATED ? "created" : "updated", position, id, json: line.slice(1) };
}
