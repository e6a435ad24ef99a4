import type { ListQuery, TodoId, TodoList } from "../todo.ts";
import { Segment } from "./segment.ts";

/** A list up to this size is sent in one piece, and kept until something changes. */
const ONE_PIECE_BYTES = 1024 * 1024;
const PIECE_BYTES = 16 * 1024;
const OPEN = 0x5b;
const CLOSE = 0x5d;

/**
 * All to-dos, kept as they are sent. They lie encoded in segments; a long list is a copy of the array of
 * segments, and a write to a segment that such a list may still be sending goes to a copy of the segment.
 */
export class Table {
  /** By ascending id; none is empty. */
  readonly #segments: Segment[] = [];
  #count = 0;
  #bytes = 0;
  /** The clock by which segments are stamped; it moves with each long list, which shares what is older. */
  #now = 0;
  #keptList: Uint8Array<ArrayBuffer> | undefined;

  get count(): number {
    return this.#count;
  }

  /** Adds an encoded to-do with an id greater than all before. */
  append(id: TodoId, json: string): void {
    this.#bytes += this.#tailFor(id).append(id, json);
    this.#count++;
    this.#keptList = undefined;
  }

  get(id: TodoId): Uint8Array<ArrayBuffer> | undefined {
    const segment = this.#segments[this.#indexOf(id)];
    const slot = segment?.slotOf(id);
    return slot === undefined ? undefined : segment?.json(slot);
  }

  isDone(id: TodoId): boolean | undefined {
    const segment = this.#segments[this.#indexOf(id)];
    const slot = segment?.slotOf(id);
    return slot === undefined ? undefined : segment?.isDone(slot);
  }

  /** Sets a to-do's `done`; tells what it is then, and whether that is a change. */
  setDone(id: TodoId, done: boolean): { json: Uint8Array<ArrayBuffer>; changed: boolean } | undefined {
    const index = this.#indexOf(id);
    const segment = this.#segments[index];
    const slot = segment?.slotOf(id);
    if (segment === undefined || slot === undefined) return undefined;
    if (segment.isDone(slot) === done) return { json: segment.json(slot), changed: false };
    const own = this.#writable(index);
    this.#bytes += own.toggle(slot);
    this.#keptList = undefined;
    return { json: own.json(slot), changed: true };
  }

  /** Takes a to-do out; whether there was one. */
  delete(id: TodoId): boolean {
    const index = this.#indexOf(id);
    const slot = this.#segments[index]?.slotOf(id);
    if (slot === undefined) return false;
    this.#bytes += this.#writable(index).remove(slot);
    this.#count--;
    this.#tidy(index);
    this.#keptList = undefined;
    return true;
  }

  list({ limit, ...filter }: ListQuery): Pick<TodoList, "json" | "next"> {
    if (limit !== undefined) return page(runs(this.#segments, filter), limit);
    const filtered = filter.after !== undefined || filter.done !== undefined;
    if (filtered || this.#bytes > ONE_PIECE_BYTES) {
      this.#now++;
      return { json: jsonArray(views(runs([...this.#segments], filter))) };
    }
    this.#keptList ??= oneJsonArray([...views(runs(this.#segments, filter))]);
    return { json: this.#keptList };
  }

  /** The segment that a to-do with this id, if any, is in: the last that starts at or before it. */
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

  /** The segment at an index, made this store's own if a list may hold it too. */
  #writable(index: number): Segment {
    const segment = this.#segments[index];
    if (segment === undefined) throw new RangeError(`no segment ${index}`);
    if (segment.stamp === this.#now) return segment;
    const copy = segment.copy(this.#now);
    this.#segments[index] = copy;
    return copy;
  }

  #tailFor(id: TodoId): Segment {
    if (this.#segments.at(-1)?.takes(id)) return this.#writable(this.#segments.length - 1);
    const segment = new Segment(id, this.#now);
    this.#segments.push(segment);
    return segment;
  }

  /** After a removal: no segment stays empty, and thin neighbours become one. */
  #tidy(index: number): void {
    if (this.#segments[index]?.count === 0) {
      this.#segments.splice(index, 1);
      return;
    }
    for (const left of [index, index - 1]) {
      const right = this.#segments[left + 1];
      if (left < 0 || right === undefined) continue;
      if (this.#segments[left]?.hasRoomFor(right) !== true) continue;
      this.#writable(left).absorb(right);
      this.#segments.splice(left + 1, 1);
    }
  }
}

/** Slots in a row of one segment. */
interface Run {
  readonly segment: Segment;
  readonly from: number;
  readonly to: number;
}

/** The to-dos after an id and in a state, if asked for, as runs of slots. */
function* runs(segments: readonly Segment[], { after, done }: Omit<ListQuery, "limit">): Generator<Run> {
  for (const segment of segments) {
    const start = after === undefined ? 0 : segment.slotAfter(after);
    if (done === undefined) {
      if (start < segment.count) yield { segment, from: start, to: segment.count };
      continue;
    }
    let from = start;
    for (let slot = start; slot < segment.count; slot++) {
      if (segment.isDone(slot) === done) continue;
      if (from < slot) yield { segment, from, to: slot };
      from = slot + 1;
    }
    if (from < segment.count) yield { segment, from, to: segment.count };
  }
}

function* views(found: Iterable<Run>): Generator<Uint8Array<ArrayBuffer>> {
  for (const { segment, from, to } of found) yield segment.view(from, to);
}

/** The first `limit` to-dos of the runs and, when there are more, the id after which the rest come. */
function page(found: Iterable<Run>, limit: number): Pick<TodoList, "json" | "next"> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let left = limit;
  let last: TodoId | undefined;
  for (const { segment, from, to } of found) {
    if (left === 0) return { json: oneJsonArray(pieces), ...(last !== undefined && { next: last }) };
    const end = Math.min(to, from + left);
    pieces.push(segment.view(from, end));
    left -= end - from;
    last = segment.idAt(end - 1);
    if (end < to) return { json: oneJsonArray(pieces), next: last };
  }
  return { json: oneJsonArray(pieces) };
}

/** A JSON array of encoded to-dos that each have a comma before them: long views as they are, short ones joined. */
function* jsonArray(views: Iterable<Uint8Array<ArrayBuffer>>): Generator<Uint8Array<ArrayBuffer>> {
  let piece = new Uint8Array(PIECE_BYTES);
  piece[0] = OPEN;
  let filled = 1;
  let first = 1;
  for (const view of views) {
    const rest = view.subarray(first);
    first = 0;
    if (filled > 0 && filled + rest.length > PIECE_BYTES) {
      yield piece.subarray(0, filled);
      piece = new Uint8Array(PIECE_BYTES);
      filled = 0;
    }
    if (rest.length > PIECE_BYTES) {
      yield rest;
    } else {
      piece.set(rest, filled);
      filled += rest.length;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
  yield new Uint8Array([CLOSE]);
}

function oneJsonArray(views: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  const length = views.reduce((sum, view) => sum + view.length, 0);
  const whole = new Uint8Array(Math.max(length + 1, 2));
  let filled = 0;
  for (const view of views) {
    whole.set(view, filled);
    filled += view.length;
  }
  whole[0] = OPEN;
  whole[whole.length - 1] = CLOSE;
  return whole;
}
