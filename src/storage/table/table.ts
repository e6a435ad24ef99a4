import type { ListQuery, TodoId, TodoList } from "../../todo.ts";
import { Segment } from "./segment.ts";

const MAX_BLOB_BYTES = 1024 * 1024;
const CHUNK_BYTES = 16 * 1024;
const OPEN = 0x5b;
const CLOSE = 0x5d;

/**
 * All to-dos of a store, encoded, in segments. A list in chunks shares the segments with the table. Before a write
 * changes a segment that a list may still be sending, it copies the segment.
 */
export class Table {
  /** By ascending id. No segment is empty. */
  readonly #segments: Segment[] = [];
  #count = 0;
  /** The number of bytes of all to-dos with their commas. The full list has one byte more. */
  #bytes = 0;
  /** Increases with each list in chunks. That list shares all segments of earlier generations. */
  #generation = 0;
  /** The full list, cached until the next write. A Blob, because a response would copy a Uint8Array. */
  #cachedList: Blob | undefined;

  get count(): number {
    return this.#count;
  }

  /** Adds an encoded to-do. The id must be greater than all earlier ids. */
  append(id: TodoId, json: string | Uint8Array): void {
    this.#bytes += this.#tailFor(id).append(id, typeof json === "string" ? encoder.encode(json) : json);
    this.#count++;
    this.#cachedList = undefined;
  }

  get(id: TodoId): Uint8Array<ArrayBuffer> | undefined {
    const segment = this.#segments[this.#indexOf(id)];
    const slot = segment?.findSlot(id);
    return slot === undefined ? undefined : segment?.json(slot);
  }

  /** Returns whether a to-do is done; `undefined` if it is absent. */
  isDone(id: TodoId): boolean | undefined {
    const segment = this.#segments[this.#indexOf(id)];
    const slot = segment?.findSlot(id);
    return slot === undefined ? undefined : segment?.isDone(slot);
  }

  /** Sets the `done` of a to-do, if it exists. */
  setDone(id: TodoId, done: boolean): void {
    const index = this.#indexOf(id);
    const segment = this.#segments[index];
    const slot = segment?.findSlot(id);
    if (slot === undefined || segment?.isDone(slot) === done) return;
    this.#bytes += this.#copyOnWrite(index).toggle(slot);
    this.#cachedList = undefined;
  }

  /** Deletes a to-do. Returns whether it existed. */
  delete(id: TodoId): boolean {
    const index = this.#indexOf(id);
    const slot = this.#segments[index]?.findSlot(id);
    if (slot === undefined) return false;
    this.#bytes += this.#copyOnWrite(index).remove(slot);
    this.#count--;
    this.#compact(index);
    this.#cachedList = undefined;
    return true;
  }

  /**
   * Lists to-dos: as a Blob up to `maxBlobBytes` (default: 1 MiB), otherwise as a snapshot in chunks. A page of at most
   * 16 KiB is a Uint8Array.
   */
  list({ limit, ...filter }: ListQuery, maxBlobBytes = MAX_BLOB_BYTES): Pick<TodoList, "json" | "next"> {
    if (limit !== undefined) return this.#page(filter, limit, maxBlobBytes);
    const filtered = filter.after !== undefined || filter.done !== undefined;
    if (filtered || this.#bytes + 1 > maxBlobBytes) {
      this.#generation++;
      return { json: jsonArray(views(runs([...this.#segmentsAfter(filter.after)], filter))) };
    }
    this.#cachedList ??= new Blob([joined([...views(runs(this.#segments, filter))])]);
    return { json: this.#cachedList };
  }

  /** Yields all to-dos in batches, as they are now. */
  batches(): Generator<readonly string[]> {
    this.#generation++;
    return textsOf([...this.#segments]);
  }

  #page(filter: Filter, limit: number, maxBlobBytes: number): Pick<TodoList, "json" | "next"> {
    const found: Run[] = [];
    let left = limit;
    let hasNext = false;
    for (const { segment, from, to } of runs(this.#segmentsAfter(filter.after), filter)) {
      hasNext = to - from > left;
      if (left > 0) found.push({ segment, from, to: Math.min(to, from + left) });
      left -= to - from;
      if (hasNext) break;
    }
    const last = found.at(-1);
    const next = last !== undefined && hasNext ? { next: last.segment.idAt(last.to - 1) } : {};
    const chunks = [...views(found)];
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.length, 1);
    if (bytes <= maxBlobBytes) {
      const json = joined(chunks);
      // Bun sends a short Uint8Array with less work than a new Blob.
      return { json: bytes <= CHUNK_BYTES ? json : new Blob([json]), ...next };
    }
    this.#generation++;
    return { json: jsonArray(views(found)), ...next };
  }

  /** Returns the index of the only segment that can contain the id: the last one that starts at or before it. */
  #indexOf(id: TodoId): number {
    let low = 0;
    let high = this.#segments.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const segment = this.#segments[middle];
      if (segment !== undefined && segment.firstId <= id) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** Returns the segments that can contain greater ids than `after`, or all of them. */
  #segmentsAfter(after: TodoId | undefined): readonly Segment[] {
    return after === undefined ? this.#segments : this.#segments.slice(Math.max(this.#indexOf(after), 0));
  }

  /** Returns the segment at an index, after copying it if a list may share it. */
  #copyOnWrite(index: number): Segment {
    const segment = this.#segments[index];
    if (segment === undefined) throw new RangeError(`no segment ${index}`);
    if (segment.generation === this.#generation) return segment;
    const copy = segment.copy(this.#generation);
    this.#segments[index] = copy;
    return copy;
  }

  #tailFor(id: TodoId): Segment {
    if (this.#segments.at(-1)?.canAppend(id)) return this.#copyOnWrite(this.#segments.length - 1);
    const segment = new Segment(id, this.#generation);
    this.#segments.push(segment);
    return segment;
  }

  /** After a deletion, removes an empty segment or merges it with small neighbors. */
  #compact(index: number): void {
    if (this.#segments[index]?.count === 0) {
      this.#segments.splice(index, 1);
      return;
    }
    for (const left of [index, index - 1]) {
      const right = this.#segments[left + 1];
      if (left < 0 || right === undefined) continue;
      if (this.#segments[left]?.canMerge(right) !== true) continue;
      this.#copyOnWrite(left).merge(right);
      this.#segments.splice(left + 1, 1);
    }
  }
}

function* textsOf(segments: readonly Segment[]): Generator<readonly string[]> {
  for (const segment of segments)
    yield Array.from({ length: segment.count }, (_, slot) => decoder.decode(segment.json(slot)));
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

type Filter = Omit<ListQuery, "limit">;

/** Consecutive slots of one segment, from `from` (inclusive) to `to` (exclusive). */
interface Run {
  readonly segment: Segment;
  readonly from: number;
  readonly to: number;
}

/** Yields the to-dos that match the filter, as runs of slots. */
function* runs(segments: readonly Segment[], { after, done }: Filter): Generator<Run> {
  for (const segment of segments) {
    const start = after === undefined ? 0 : segment.slotAfter(after);
    if (done === undefined) {
      if (start < segment.count) yield { segment, from: start, to: segment.count };
      continue;
    }
    let from = segment.slotWith(done, start);
    while (from < segment.count) {
      const to = segment.slotWith(!done, from);
      yield { segment, from, to };
      from = segment.slotWith(done, to);
    }
  }
}

function* views(found: Iterable<Run>): Generator<Uint8Array<ArrayBuffer>> {
  for (const { segment, from, to } of found) yield segment.view(from, to);
}

/** Yields a JSON array of to-dos that are each preceded by a comma. Joins short views and passes long ones on. */
function* jsonArray(views: Iterable<Uint8Array<ArrayBuffer>>): Generator<Uint8Array<ArrayBuffer>> {
  let chunk = new Uint8Array(CHUNK_BYTES);
  chunk[0] = OPEN;
  let filled = 1;
  let first = 1;
  for (const view of views) {
    const rest = first === 0 ? view : view.subarray(first);
    first = 0;
    if (filled > 0 && filled + rest.length > CHUNK_BYTES) {
      yield chunk.subarray(0, filled);
      chunk = new Uint8Array(CHUNK_BYTES);
      filled = 0;
    }
    if (rest.length > CHUNK_BYTES) {
      yield rest;
    } else {
      chunk.set(rest, filled);
      filled += rest.length;
    }
  }
  if (filled > 0) yield chunk.subarray(0, filled);
  yield new Uint8Array([CLOSE]);
}

/** Returns the same JSON array in one piece. */
function joined(views: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  const length = views.reduce((sum, view) => sum + view.length, 1);
  const json = new Uint8Array(Math.max(length, 2));
  let filled = 0;
  for (const view of views) {
    json.set(view, filled);
    filled += view.length;
  }
  json[0] = OPEN;
  json[json.length - 1] = CLOSE;
  return json;
}
