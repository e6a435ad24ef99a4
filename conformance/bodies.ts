/** Bodies: JSON in every notation, and what is nearly JSON. */
import examples from "./examples.json" with { type: "json" };
import type { Random } from "./random.ts";

const OTHER_VALUES = ["null", "0", "1", "1.5", "[]", "{}", '"text"', "[1,2]", '{"a":{"b":[]}}', "-3e2", '""'];

/** Writes an object with one field in each notation that is JSON. */
export const NOTATIONS: readonly ((key: string, value: string) => string)[] = [
  (key, value) => `{"${key}":${value}}`,
  (key, value) => `{"${key}": ${value}}`,
  (key, value) => ` \n{ "${key}"\t:\r\n ${value} }\n `,
  (key, value) => `{"${escaped(key)}":${value}}`,
  (key, value) => `{"${key}":${value.replace(/[\u0080-\uffff]/g, escaped)}}`,
  (key, value) => `{"${key}":${value.replaceAll("/", "\\/")}}`,
  (key, value) => `{"${key}":${value.replace(/(?<=^")[^"\\]/u, escaped)}}`,
];

/** Writes each UTF-16 code unit as an escape. */
function escaped(text: string): string {
  return Array.from(
    { length: text.length },
    (_, index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, "0")}`,
  ).join("");
}

/** Returns an object with further keys, which a server may reject or ignore. */
export function withOtherKeys(
  key: string,
  value: string,
  others: Readonly<Record<string, string>>,
  random: Random,
): string {
  const members = [[key, value], ...Object.entries(others), ["other", random.pick(OTHER_VALUES)]];
  return `{${random
    .shuffle(members)
    .map(([name, each]) => `"${name}":${each}`)
    .join()}}`;
}

/** Texts that are no JSON object with this field, although some contain the valid value. */
export function malformedBodies(key: string, value: string): string[] {
  const capital = key.slice(0, 1).toUpperCase() + key.slice(1);
  return examples.bodies.malformed.map((template) =>
    template
      .replaceAll("<key>", key)
      .replaceAll("<Key>", capital)
      .replaceAll("<KEY>", key.toUpperCase())
      .replaceAll("<value>", template.startsWith("<key>=") ? value.replaceAll('"', "") : value),
  );
}
