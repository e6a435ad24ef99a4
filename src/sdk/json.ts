import type { AnyId, IdFormat, IdOf, Todo } from "./types.ts";

/**
 * Parses JSON and keeps ids as text, because a number would be rounded. A quote within a JSON string has a backslash
 * before it, so the pattern matches member names only, whatever the titles contain.
 */
export function parseJson(json: string): unknown {
  return JSON.parse(json.replace(/([{,]\s*"id"\s*:\s*)(\d+)/g, '$1"$2"'));
}

/** Converts the digits of an id to the type that the client returns. */
export type ReadId<Id extends AnyId> = (digits: string) => Id;

/** Returns the function that reads ids in a format. */
export function createIdReader<Format extends IdFormat>(format: Format | undefined): ReadId<IdOf<Format>>;
export function createIdReader(format: IdFormat | undefined): ReadId<AnyId> {
  return format === "string" ? (digits) => digits : BigInt;
}

/** Returns the id of a parsed object. Throws a SyntaxError if it has none. */
export function idOf<Id extends AnyId>(value: unknown, readId: ReadId<Id>): Id {
  if (isObject(value) && "id" in value && typeof value.id === "string") return readId(value.id);
  throw new SyntaxError("the id is missing");
}

/** Returns the to-do in a parsed object. Throws a SyntaxError if it is not a to-do. */
export function todoOf<Id extends AnyId>(value: unknown, readId: ReadId<Id>): Todo<Id> {
  const id = idOf(value, readId);
  if (isObject(value) && "title" in value && "done" in value) {
    const { title, done } = value;
    if (typeof title === "string" && typeof done === "boolean") return { id, title, done };
  }
  throw new SyntaxError("not a to-do");
}

export const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
