/** JSON whose integers are bigint, so that ids above 2^53 stay exact (section 2: unsigned 64-bit). */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** Parses a JSON text. Returns undefined when the text is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  // Node 20 does not pass the source of a number to a reviver, so each integer becomes a marked string first.
  const marked = text.replace(TOKEN, (token, integer) => {
    if (integer !== undefined) return `"n${integer}"`;
    return token.startsWith('"') ? `"s${token.slice(1)}` : token;
  });
  return restore(JSON.parse(marked));
}

/** Removes the marks. It is faster than a reviver. */
function restore(marked: Json): Json {
  if (typeof marked === "string") return marked.startsWith("n") ? BigInt(marked.slice(1)) : marked.slice(1);
  if (Array.isArray(marked)) return marked.map(restore);
  if (!isObject(marked)) return marked;
  return Object.fromEntries(Object.entries(marked).map(([key, value]) => [key.slice(1), restore(value)]));
}

/** A string, a number that is not an integer, or an integer. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)|(-?\d+)/g;

function isObject(json: Json | undefined): json is { [key: string]: Json } {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}

/** Returns an own property of a JSON object, or undefined when it has none. */
export function ownProperty(json: Json | undefined, key: string): Json | undefined {
  return isObject(json) && Object.hasOwn(json, key) ? json[key] : undefined;
}

/** Returns the keys of a JSON object, or undefined for another value. */
export function keysOf(json: Json | undefined): readonly string[] | undefined {
  return isObject(json) ? Object.keys(json) : undefined;
}
