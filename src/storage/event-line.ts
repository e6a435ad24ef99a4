import type { Position, TodoId } from "../todo.ts";

/** An event as the engines keep it. */
export type StoredEvent = { readonly position: Position; readonly id: TodoId } & (
  | { readonly type: "created" | "updated"; readonly json: string }
  | { readonly type: "deleted" }
);

const CREATED = "+";
const UPDATED = "=";
const DELETED = "-";
const BEFORE_TITLE = ',"title":';
const AFTER_TITLE = ',"done":false}';

/** An event as a line: a sign and the to-do as the event leaves it, or the id of one deleted. */
export function encodeEvent(event: StoredEvent): string {
  if (event.type === "deleted") return `${DELETED}${event.id}`;
  return `${event.type === "created" ? CREATED : UPDATED}${event.json}`;
}

/** The JSON of the title in the line of a created to-do; `undefined` for another line. */
export function createdTitle(line: string): string | undefined {
  if (!line.startsWith(CREATED)) return undefined;
  return line.slice(line.indexOf(BEFORE_TITLE) + BEFORE_TITLE.length, -AFTER_TITLE.length);
}

/** Reads events, a line each, of which the last has a position; throws an Error for what is none. */
export function decodeEvents(lines: string, last: Position): StoredEvent[] {
  const all = lines.split("\n");
  const first = last.n - all.length + 1;
  return all.map((line, index) => decodeEvent(line, { epoch: last.epoch, n: first + index }));
}

function decodeEvent(line: string, position: Position): StoredEvent {
  const [, sign, digits] = /^([+=-])(?:\{"id":)?(\d+)/.exec(line) ?? [];
  if (digits === undefined) throw new Error(`it has no event in position ${position.n}`);
  const id = BigInt(digits);
  if (sign === DELETED) return { type: "deleted", position, id };
  return { type: sign === CREATED ? "created" : "updated", position, id, json: line.slice(1) };
}
