/** Bodies: JSON in every notation, and what is nearly JSON. */
import type { Random } from "./random.ts";

const OTHER_VALUES = ["null", "0", "1", "1.5", "[]", "{}", '"text"', "[1,2]", '{"a":{"b":[]}}', "-3e2", '""'];

/** Returns an object with this field in some notation that is JSON. */
export function notation(key: string, value: string, random: Random): string {
  switch (random.below(6)) {
    case 0:
      return `{"${key}": ${value}}`;
    case 1:
      return ` \n{ "${key}"\t:\r\n ${value} }\n `;
    case 2:
      return `{"${escaped(key)}":${value}}`;
    case 3:
      return `{"${key}":${value.replace(/[\u0080-\uffff]/g, escaped)}}`;
    case 4:
      return `{"${key}":${value.startsWith('"') ? `"${value.slice(1, -1).replace(/(?<!\\)[ -~]/, escapedUnlessBackslash)}"` : value}}`;
    default:
      return `{"${key}":${value}}`;
  }
}

function escapedUnlessBackslash(character: string): string {
  return character === "\\" ? character : escaped(character);
}

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
  return [
    ...["", " ", "{", "}", key, "null", "true", "42", '"text"', "[]", "[{}]", "{}{}", `{'${key}':'x'}`],
    ...[value, `{"${key}":${value}`, `{"${key}":${value}}}`, `{"${key}":${value},}`, `{${key}:${value}}`],
    ...[
      `[{"${key}":${value}}]`,
      `{"${key}":[${value}]}`,
      `{"todo":{"${key}":${value}}}`,
      `"${key}":${value}`,
    ],
    ...[
      `{"${key}" ${value}}`,
      `{"${key}"=${value}}`,
      `{,"${key}":${value}}`,
      `{"${key}":${value}}x`,
      `x{"${key}":${value}}`,
    ],
    ...[
      `{"${key}":${value}} {"${key}":${value}}`,
      `{"${key}":${value};}`,
      `{"${key}":${value}/**/}`,
      `{"${key}":+1}`,
    ],
    ...[
      `${key}=${value.replaceAll('"', "")}`,
      `{"${key}":}`,
      `{"${key}"}`,
      `{"${key}":tru}`,
      `{"${key}":'x'}`,
      `{"${key}":"x}`,
    ],
    ...[
      `{"${key}":"a\nb"}`,
      `{"${key}":"\\x41"}`,
      `{"${key}":"\\u12"}`,
      `{"${key}":01}`,
      `(${value})`,
      `[${value}]`,
    ],
    ...[
      "{}",
      `{"${capital}":${value}}`,
      `{"${key} ":${value}}`,
      `{"name":${value}}`,
      `{"${key.toUpperCase()}":${value}}`,
    ],
  ];
}

/** Values that are no string. */
export const NOT_STRINGS = [
  "null",
  "true",
  "false",
  "0",
  "1",
  "1.5",
  "[]",
  '["x"]',
  "{}",
  '{"title":"x"}',
  "18446744073709551616",
];
/** Values that are no boolean. */
export const NOT_BOOLEANS = [
  ...[
    "null",
    '"true"',
    '"false"',
    '"yes"',
    '"on"',
    '"1"',
    '""',
    "0",
    "1",
    "1.0",
    "-1",
    "[]",
    "[true]",
    "{}",
    '{"done":true}',
  ],
  ...['"True"', '"no"', '"off"', '"0"', '"null"'],
];
