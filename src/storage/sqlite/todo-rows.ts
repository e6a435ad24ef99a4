import type { Database } from "bun:sqlite";
import type { TodoId } from "../../todo.ts";
import { MAX_DISTANCE, type TodoRun } from "../table/segment.ts";
import type { Checksum } from "./checksum.ts";

/** The number of rows that one query reads. One result for many rows is read in half of the time of one for each. */
const MAX_ROWS = 2048;

/** Reads the ids of the next rows, joined by commas, and their JSON, joined by line feeds. */
const NEXT_ROWS = `
  SELECT group_concat(id) AS ids, CAST(group_concat(json, char(10)) AS BLOB) AS bytes
  FROM (SELECT id, json FROM todos WHERE id > ? ORDER BY id LIMIT ?)`;

interface Rows {
  readonly ids: string | null;
  readonly bytes: Uint8Array<ArrayBuffer> | null;
}

const COMMA = 0x2c;
const LINE_FEED = 0x0a;
const ZERO = 0x30;
/** Where the id of an encoded to-do starts. */
const ID_OFFSET = '{"id":'.length;

/** Yields all to-dos by ascending id, and adds them to a checksum. */
export function* readTodoRuns(database: Database, checksum: Checksum): Generator<TodoRun> {
  const query = database.query<Rows, [bigint, number]>(NEXT_ROWS);
  // Before the least id that SQLite has.
  let after = -(2n ** 63n);
  let limit = MAX_ROWS;
  for (;;) {
    const { ids, bytes } = query.get(after, limit) ?? { ids: null, bytes: null };
    if (ids === null || bytes === null) return;
    const firstId = BigInt(ids.split(",", 1)[0] ?? "");
    const lastId = BigInt(ids.slice(ids.lastIndexOf(",") + 1));
    if (lastId - firstId > MAX_DISTANCE) {
      limit = Math.ceil(limit / 2);
      continue;
    }
    yield toRun(firstId, ids, bytes, checksum);
    after = lastId;
    limit = Math.min(limit * 2, MAX_ROWS);
  }
}

/** Divides the bytes into to-dos. Valid JSON has no line feed. */
function toRun(firstId: TodoId, ids: string, bytes: Uint8Array<ArrayBuffer>, checksum: Checksum): TodoRun {
  const low = Number(BigInt.asUintN(32, firstId));
  const distances = new Uint32Array(MAX_ROWS);
  const starts = new Uint32Array(MAX_ROWS + 1);
  let count = 0;
  let idAt = 0;
  for (let start = 0; start <= bytes.length && count < MAX_ROWS; ) {
    const next = bytes.indexOf(LINE_FEED, start);
    const end = next < 0 ? bytes.length : next;
    bytes[end] = COMMA;
    let isOwn = true;
    let at = start + ID_OFFSET;
    let id = 0;
    for (let digit = ids.charCodeAt(idAt); digit >= ZERO; digit = ids.charCodeAt(++idAt), at++) {
      isOwn &&= digit === bytes[at];
      id = (Math.imul(id, 10) + digit - ZERO) >>> 0;
    }
    idAt++;
    isOwn &&= bytes[at] === COMMA;
    // A to-do under another id is another to-do, so its hash lacks the last byte.
    checksum.add(bytes.subarray(start, isOwn ? end : Math.max(end - 1, start)));
    distances[count++] = (id - low) >>> 0;
    start = end + 1;
    starts[count] = start;
  }
  return { firstId, count, distances, starts, bytes };
}
