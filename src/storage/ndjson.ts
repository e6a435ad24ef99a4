/**
 * The export format (NDJSON): one to-do per line, by ascending id. The first line is a header, such as
 * `{"todoService":1,"lastId":"12","todos":10}`. Files from other sources may omit the header. If the header also has `keys`
 * or `idempotencyRecords`, the file has that number of lines with API keys or records of idempotency keys.
 */
import type { StoredKey } from "../credential/key.ts";
import type { TodoId } from "../todo.ts";
import { type TaskOptions, type TransferSummary, yieldToEventLoop } from "./maintenance.ts";
import type { IdempotencyRecord } from "./records/idempotency.ts";
import { madeWithText } from "./records/key-row.ts";

export const FORMAT = 1;
const LINES_PER_PIECE = 500;

export interface Header {
  /** The greatest id ever assigned. It is a JSON string, because many parsers lose digits above 2^53. */
  readonly lastId: TodoId;
  readonly todos: number;
  /** The number of API keys; absent from an export without API keys. */
  readonly keys?: number | undefined;
  /** The number of records of idempotency keys; absent if there are none. */
  readonly idempotencyRecords?: number | undefined;
}

/** What an export contains. */
export interface ExportContents {
  /** The greatest id ever assigned. */
  readonly lastId: TodoId;
  /** The number of to-dos. */
  readonly count: number;
  /** The encoded to-dos by ascending id, in batches. */
  readonly todos: Iterable<readonly string[]> | AsyncIterable<readonly string[]>;
  /** The API keys; `undefined` to omit them. */
  readonly keys: readonly StoredKey[] | undefined;
  readonly idempotencyRecords: readonly IdempotencyRecord[];
}

/** Writes an export. Throws the signal's reason if it is aborted. */
export async function writeExport(
  { lastId, count, todos, keys, idempotencyRecords }: ExportContents,
  write: (text: string) => Promise<void>,
  { signal, onProgress = () => {} }: TaskOptions,
): Promise<TransferSummary> {
  const writeLines = async (lines: readonly string[]): Promise<void> => {
    if (lines.length > 0) await write(`${lines.join("\n")}\n`);
    await yieldToEventLoop(signal);
  };
  const records = idempotencyRecords.length || undefined;
  await writeLines([encodeHeader({ lastId, todos: count, keys: keys?.length, idempotencyRecords: records })]);
  let done = 0;
  for await (const batch of todos) {
    await writeLines(batch);
    done += batch.length;
    onProgress("exporting", done, count);
  }
  for (const batch of inBatches(keys ?? [])) await writeLines(batch.map(encodeKey));
  for (const batch of inBatches(idempotencyRecords)) await writeLines(batch.map(encodeIdempotencyRecord));
  return { todos: done, lastId, keys: keys?.length };
}

/** Divides items into the batches that `writeExport` writes at once. */
export function* inBatches<T>(items: Iterable<T>): Generator<readonly T[]> {
  let batch: T[] = [];
  for (const item of items) {
    batch.push(item);
    if (batch.length < LINES_PER_PIECE) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

export function encodeHeader({ lastId, todos, keys, idempotencyRecords }: Header): string {
  const more = JSON.stringify({ keys, idempotencyRecords }).slice(1, -1);
  return `{"todoService":${FORMAT},"lastId":"${lastId}","todos":${todos}${more && `,${more}`}}`;
}

/** Encodes the record of an idempotency key as a line. All its strings are base64url. */
export function encodeIdempotencyRecord({ keyHash, titleHash, id, createdAt }: IdempotencyRecord): string {
  return `{"idempotencyRecord":{"keyHash":"${keyHash}","titleHash":"${titleHash}","id":${id},"createdAt":${createdAt}}}`;
}

/** Encodes an API key as a line. It has the hash of the token, in hexadecimal, because the token is not stored. */
export function encodeKey(key: StoredKey): string {
  const { kind: _, parent: __, tokenHash, ...others } = key;
  const hash = Buffer.from(tokenHash).toString("hex");
  return JSON.stringify({ apiKey: { ...others, tokenHash: hash, parent: madeWithText(key) } });
}
