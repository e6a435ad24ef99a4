import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { StoredKey } from "../credential/key.ts";
import { hashToken } from "../credential/token.ts";
import { encodeTodo, type Todo } from "../todo.ts";
import { PreconditionError, type TransferOptions } from "./maintenance.ts";
import { encodeHeader, encodeIdempotencyRecord, encodeKey } from "./ndjson.ts";
import { NdjsonReader } from "./ndjson-reader.ts";
import { sha256 } from "./records/idempotency.ts";
import { parseMadeWith } from "./records/key-row.ts";

const MAX_ID = 2n ** 63n - 1n;

function read(text: string | Uint8Array, pieceLength = 64, keys: TransferOptions["keys"] = "include") {
  const bytes = Buffer.from(text);
  const reader = new NdjsonReader({ maxId: MAX_ID, keys });
  const todos: Todo[] = [];
  for (let start = 0; start < bytes.length; start += pieceLength) {
    todos.push(...reader.read(bytes.subarray(start, start + pieceLength)));
  }
  todos.push(...reader.end());
  const { lastId, summary } = reader;
  return {
    todos,
    lastId,
    summary,
    keys: [...reader.keys.values()],
    records: [...reader.idempotencyRecords.values()],
  };
}

function refusalOf(...given: Parameters<typeof read>): string | undefined {
  try {
    read(...given);
  } catch (error) {
    if (error instanceof PreconditionError) return error.message;
    throw error;
  }
  return undefined;
}

const line = (id: number | bigint, title = "x", done = false): string =>
  encodeTodo({ id: BigInt(id), title, done });
const lines = (...all: readonly string[]): string => all.map((one) => `${one}\n`).join("");
const lost = (n: number, name: string): string => `line ${n}: has "${name}", which would be lost`;
const incomplete = (said: number, what: string, found: number): string =>
  `the file is incomplete: the header says ${said} ${what}, but it has ${found}`;
const tooLong = (n: number): string => `line ${n}: is longer than 65536 bytes`;
const TIME = "must be a whole number from 0 to 8640000000000000";
const header = (lastId: number | bigint, todos: number): string =>
  encodeHeader({ lastId: BigInt(lastId), todos });

const TODOS = fc
  .array(
    fc.record({
      id: fc.bigInt(1n, MAX_ID),
      title: fc.string({ unit: "binary", minLength: 1, maxLength: 20 }).map((title) => `t${title}`),
      done: fc.boolean(),
    }),
    { maxLength: 30 },
  )
  .map((todos) => {
    const unique = new Map(todos.map((todo) => [todo.id, todo]));
    return [...unique.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1));
  });

describe("NdjsonReader", () => {
  test("parses an export in chunks of any size", () => {
    const property = fc.property(TODOS, fc.integer({ min: 1, max: 100 }), (all, pieceLength) => {
      const todos = all.filter(({ title }) => title.isWellFormed());
      const lastId = MAX_ID;
      const text = lines(encodeHeader({ lastId, todos: todos.length }), ...todos.map(encodeTodo));
      expect(read(text, pieceLength)).toMatchObject({ todos, lastId });
    });
    fc.assert(property);
  });

  const KEY: StoredKey = { id: "a1", name: "ci", tokenHash: hashToken("a"), scope: "write", createdAt: 5 };
  const KEYS: readonly StoredKey[] = [
    KEY,
    {
      ...{ id: "b2", name: "Zoë 😀", tokenHash: hashToken("b"), scope: "read", createdAt: 5 },
      // The latest time that a Date can represent.
      ...{ expiresAt: 8.64e15, lifetime: 4, lastUsedAt: 7 },
    },
  ];
  const RECORD = { keyHash: sha256("a"), titleHash: sha256("x"), id: 2n, createdAt: 5 };
  const RECORDS = [RECORD, { keyHash: sha256("b"), titleHash: sha256("y"), id: MAX_ID, createdAt: 6 }];
  const keysHead = encodeHeader({ lastId: 2n, todos: 1, keys: 2 });
  const recordsHead = encodeHeader({ lastId: MAX_ID, todos: 1, idempotencyRecords: 2 });
  const keyLines = (...keys: readonly string[]): string => lines(keysHead, line(2), ...keys);
  const recordLines = (...records: readonly string[]): string => lines(recordsHead, line(2), ...records);

  test("parses the API keys of an export", () => {
    const keys = KEYS.map(encodeKey);
    for (const text of [keyLines(...keys), lines(keysHead, ...keys, line(2))])
      expect(read(text)).toMatchObject({ todos: [{ id: 2n, title: "x", done: false }], keys: KEYS });
    expect(read(lines(encodeHeader({ lastId: 2n, todos: 1, keys: 0 }), line(2))).keys).toEqual([]);
    expect(read(lines(header(2, 1), line(2))).keys).toEqual([]);
  });

  test("leaves out keys that were made with a key that the file does not have, and counts them", () => {
    const others = ["user::zoe", "key:zzz", "code:key:k4", "code:key:k1", "key:k5"];
    const keys = [undefined, "key:k0", "code:key:k0", ...others].map((parent, i) => ({
      ...{ ...KEY, id: `k${i}`, name: `n${i}`, tokenHash: hashToken(`${i}`) },
      ...(parent !== undefined && parseMadeWith(parent)),
    }));
    const head = encodeHeader({ lastId: 2n, todos: 1, keys: keys.length });
    const { summary, ...found } = read(lines(head, line(2), ...keys.map(encodeKey)));
    expect(found.keys.map(({ id }) => id)).toEqual(["k0", "k1", "k2", "k3", "k6"]);
    expect(summary).toEqual({ todos: 1, lastId: 2n, keys: 5, orphans: 3 });
  });

  test("rejects a file with API keys unless the caller requests them", () => {
    expect(refusalOf(keyLines(...KEYS.map(encodeKey)), 64, "omit")).toBe(
      "line 1: the file has API keys: add --with-keys to import them, or export without them",
    );
  });

  test("parses the records of idempotency keys of an export", () => {
    expect(read(recordLines(...RECORDS.map(encodeIdempotencyRecord)), 64, "omit").records).toEqual(RECORDS);
  });

  test("accepts a file without a header or a last line break", () => {
    const todos = [
      { id: 3n, title: "a", done: true },
      { id: 2n ** 53n + 1n, title: "b", done: false },
    ];
    const text = todos.map(encodeTodo).join("\n");
    expect(read(text)).toMatchObject({ todos, lastId: 2n ** 53n + 1n });
  });

  test("skips a byte order mark and blank lines, and accepts Windows line breaks", () => {
    const text = `\uFEFF\n \t\r\n${header(9, 1)}\r\n\r\n${line(5)}\r\n\n`;
    expect(read(text)).toMatchObject({ todos: [{ id: 5n, title: "x", done: false }], lastId: 9n });
  });

  test("accepts any order of properties and whitespace", () => {
    expect(read('{ "done" : true , "title":"\\u0061", "id" : 7 }').todos).toEqual([
      { id: 7n, title: "a", done: true },
    ]);
  });

  const NO_ID = "id must be a whole number from 1 to 9223372036854775807";
  const NO_LAST_ID = "lastId must be a string of digits";
  const COUNT = "must be a whole number from 0 to 9007199254740991";
  const LONG = "x".repeat(64 * 1024 + 1);

  type Wrong = readonly [text: string, message: string];
  /** Returns rows with files whose line after the to-do is wrong. */
  const wrong = (what: string, file: (text: string) => string, all: readonly Wrong[]) =>
    all.map(([text, said]): [string, string, string] => [
      `the ${what} ${text}`,
      file(text),
      `line 3: ${said}`,
    ]);
  const wrongKeys = wrong("API key", keyLines, [
    ['{"apiKey":1}', "apiKey must be an object"],
    ['{"apiKey":{},"id":1}', 'has "id", which would be lost'],
    [encodeKey({ ...KEY, id: "a b" }), "id must be 1 to 64 letters, digits, - or _"],
    [encodeKey({ ...KEY, name: "" }), "name must not be empty"],
    [encodeKey({ ...KEY, tokenHash: Buffer.from("a") }), "tokenHash must be 64 hexadecimal digits"],
    [encodeKey({ ...KEY, createdAt: 1.5 }), `createdAt ${TIME}`],
    [encodeKey({ ...KEY, expiresAt: -1 }), `expiresAt ${TIME}`],
    ...["createdAt", "expiresAt", "lastUsedAt"].map(
      (name): Wrong => [encodeKey({ ...KEY, [name]: 8.64e15 + 1 }), `${name} ${TIME}`],
    ),
    [
      encodeKey({ ...KEY, lifetime: 3_153_600_000_001 }),
      "lifetime must be a whole number from 0 to 3153600000000",
    ],
    [encodeKey(KEY).replace('"write"', '"admin"'), 'scope must be "read" or "write"'],
    ...["1", "key:", "user:x", "code:ann:x:y", ["key:abc"]].map(
      (parent): Wrong => [
        encodeKey(KEY).replace("}}", `,"parent":${JSON.stringify(parent)}}}`),
        "parent must name a key, a user or a client",
      ],
    ),
    [encodeKey(KEY).replace("}}", ',"token":"x"}}'), 'has "token", which would be lost'],
  ]);
  const record = encodeIdempotencyRecord(RECORD);
  const wrongRecords = wrong("record", recordLines, [
    ['{"idempotencyRecord":1}', "idempotencyRecord must be an object"],
    ['{"idempotencyRecord":{},"id":1}', 'has "id", which would be lost'],
    [record.replace("}}", ',"title":"x"}}'), 'has "title", which would be lost'],
    [record.replace('"id":2', '"id":0'), NO_ID],
    [encodeIdempotencyRecord({ ...RECORD, id: MAX_ID + 1n }), NO_ID],
    [encodeIdempotencyRecord({ ...RECORD, keyHash: "a" }), "keyHash must be a SHA-256 in base64url"],
    [
      encodeIdempotencyRecord({ ...RECORD, titleHash: `${RECORD.titleHash}=` }),
      "titleHash must be a SHA-256 in base64url",
    ],
    [encodeIdempotencyRecord({ ...RECORD, createdAt: -1 }), `createdAt ${TIME}`],
  ]);
  const again = (name: string): string =>
    `line 4: an earlier line has the same ${name}: keep one of them, and lower the count in the header`;

  test.each<[what: string, text: string | Uint8Array, message: string]>([
    ...wrongKeys,
    ...wrongRecords,
    [
      "a second key of an id",
      keyLines(encodeKey(KEY), encodeKey({ ...KEY, tokenHash: hashToken("b") })),
      again("id"),
    ],
    [
      "a second key of a token",
      keyLines(encodeKey(KEY), encodeKey({ ...KEY, id: "b2" })),
      again("tokenHash"),
    ],
    ["too few API keys", keyLines(encodeKey(KEY)), incomplete(2, "API keys", 1)],
    ["an undeclared API key", lines(header(2, 1), line(2), encodeKey(KEY)), lost(3, "apiKey")],
    ["a second record of an idempotency key", recordLines(record, record), again("keyHash")],
    ["too few records", recordLines(record), incomplete(2, "idempotency records", 1)],
    ["an undeclared record", lines(header(2, 1), line(2), record), lost(3, "idempotencyRecord")],
    ["an empty file", "", "the file has no to-dos"],
    ["blank lines", "\n\n \n", "the file has no to-dos"],
    ["a blank title", lines(line(1), "", line(2, " \u0085")), "line 3: title must not be empty"],
    ["a to-do without done", lines('{"id":1,"title":"x"}'), "line 1: done is required"],
    ...['"1"', "1.0", "1e2", "-1"].map((id): [string, string, string] => [
      `the id ${id}`,
      lines(`{"id":${id},"title":"x","done":true}`),
      `line 1: ${NO_ID}`,
    ]),
    ["a to-do without id", lines('{"title":"x","done":true}'), `line 1: ${NO_ID}`],
    ["an id of 0", lines(line(0)), `line 1: ${NO_ID}`],
    ["an id above the maximum", lines(line(MAX_ID), line(MAX_ID + 1n)), `line 2: ${NO_ID}`],
    ["a repeated id", lines(line(1), line(7), line(7)), "line 3: id 7 comes after 7: ids must ascend"],
    ["ids in descending order", lines(line(7), line(6)), "line 2: id 6 comes after 7: ids must ascend"],
    [
      "ids above 2^53 in descending order",
      lines(line(2n ** 53n + 1n), line(2n ** 53n)),
      "line 2: id 9007199254740992 comes after 9007199254740993: ids must ascend",
    ],
    ["an unknown member", lines('{"id":1,"title":"x","done":true,"due":1}'), lost(1, "due")],
    ["a member __proto__", lines('{"id":1,"title":"x","done":true,"__proto__":{}}'), lost(1, "__proto__")],
    ["a line that is not JSON", lines(line(1), "buy milk"), "line 2: is not JSON"],
    ["an array in one line", lines(`[${line(1)}]`), "line 1: is not an object with id, title and done"],
    ["an array over several lines", `[\n${line(1)},\n${line(2)}\n]\n`, "line 1: is not JSON"],
    ["null", lines("null"), "line 1: is not an object with id, title and done"],
    [
      "bytes that are not UTF-8",
      Buffer.concat([Buffer.from(lines(line(1))), Buffer.from(lines(line(2, "é")), "latin1")]),
      "line 2: is not UTF-8",
    ],
    [
      "a line that is not JSON before bytes that are not UTF-8",
      Buffer.concat([Buffer.from(lines("x")), Buffer.from([0xff, 0x0a])]),
      "line 1: is not JSON",
    ],
    ["a lastId with a letter", lines('{"todoService":1,"lastId":"5x","todos":0}'), `line 1: ${NO_LAST_ID}`],
    ["a long line", lines(line(1), LONG), tooLong(2)],
    ["a long line without a line break", lines(line(1)) + LONG + LONG, tooLong(2)],
    ["a long line of multi-byte characters", lines(`"${"😀".repeat(16 * 1024)}"`), tooLong(1)],
    [
      "a truncated line",
      lines(line(1)) + line(2).slice(0, 20),
      "line 2: is not JSON; is the file truncated?",
    ],
    ["fewer to-dos than in the header", lines(header(5, 3), line(1), line(2)), incomplete(3, "to-dos", 2)],
    ["more to-dos than in the header", lines(header(5, 1), line(1), line(2)), incomplete(1, "to-dos", 2)],
    ["a header with a count, but no to-dos", header(5, 1), incomplete(1, "to-dos", 0)],
    [
      "an id above the lastId of the header",
      lines(header(5, 1), line(6)),
      "line 2: id 6 is greater than the lastId of the header, 5",
    ],
    ["a second header", lines(header(5, 0), header(5, 0)), lost(2, "todoService")],
    ["a header after a to-do", lines(line(1), header(5, 1)), lost(2, "todoService")],
    [
      "a newer format",
      lines('{"todoService":2,"lastId":"1","todos":1}'),
      "line 1: has the format 2, which is not supported",
    ],
    [
      "a format that is not a number",
      lines('{"todoService":"1","lastId":"1","todos":1}'),
      `line 1: todoService ${COUNT}`,
    ],
    [
      "a lastId that is not a string",
      lines('{"todoService":1,"lastId":1,"todos":1}'),
      `line 1: ${NO_LAST_ID}`,
    ],
    [
      "a lastId above the maximum",
      lines(header(MAX_ID + 1n, 1)),
      `line 1: lastId must be a whole number from 0 to ${MAX_ID}`,
    ],
    ["a header without lastId", lines('{"todoService":1,"todos":1}'), `line 1: ${NO_LAST_ID}`],
    ["a header without a count", lines('{"todoService":1,"lastId":"1"}'), `line 1: todos ${COUNT}`],
    [
      "an unknown member of the header",
      lines('{"todoService":1,"lastId":"1","todos":1,"users":[]}'),
      lost(1, "users"),
    ],
  ])("rejects %s", (_what, text, message) => {
    // One byte at a time would take seconds for a long line.
    const pieceLengths = [text.length < 1000 ? 1 : 1000, 64, 1_000_000];
    expect(pieceLengths.map((length) => refusalOf(text, length))).toEqual([message, message, message]);
  });

  test("accepts a line of 65536 bytes", () => {
    const text = line(1).padEnd(64 * 1024);
    expect(read(lines(text)).todos).toHaveLength(1);
    expect(refusalOf(lines(`${text} `))).toBe(tooLong(1));
  });

  test("rejects a line that is too long before it ends", () => {
    const reader = new NdjsonReader({ maxId: MAX_ID });
    const piece = Buffer.alloc(40_000, "x");
    expect([...reader.read(Buffer.from(lines(line(1)))), ...reader.read(piece)]).toHaveLength(1);
    expect(() => [...reader.read(piece)]).toThrow(tooLong(2));
  });

  test("accepts a header with a count of 0 to-dos", () => {
    expect(read(lines(header(5, 0)))).toMatchObject({ todos: [], lastId: 5n });
  });
});
