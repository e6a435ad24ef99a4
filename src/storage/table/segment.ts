import type { TodoId } from "../../todo.ts";

/** A segment is full at either limit. Small segments keep copy-on-write cheap while lists are being sent. */
const CAPACITY = 768;
const MAX_BYTES = 36 * 1024;
const FIRST_BYTES = 4096;
/** Most full segments need this, because the last to-do may end beyond the limit. */
const FULL_BYTES = MAX_BYTES + 1024;
const MAX_UNUSED_BYTES = 4096;
/** The greatest difference of two ids in a segment. */
const MAX_DISTANCE = 0xffff_ffff;
const TRUE = new TextEncoder().encode("true}");
const FALSE = new TextEncoder().encode("false}");
const COMMA = 0x2c;

/**
 * Up to 768 encoded to-dos by ascending id, each preceded by a comma. Concatenated segments are therefore the inside
 * of a JSON array. A slot is the index of a to-do in its segment.
 */
export class Segment {
  /** The lower bound of the ids in this segment. */
  readonly firstId: TodoId;
  /** The generation of the table in which the segment was created. */
  readonly generation: number;
  #count = 0;
  /** The difference between each id and `firstId`. */
  #distances = new Uint32Array(CAPACITY);
  /** The start of each to-do's bytes, followed by the end of the last one. */
  #offsets = new Uint32Array(CAPACITY + 1);
  /** 1 for each to-do that is done, else 0. */
  #states = new Uint8Array(CAPACITY);
  #bytes = new Uint8Array(FIRST_BYTES);

  constructor(firstId: TodoId, generation: number) {
    this.firstId = firstId;
    this.generation = generation;
  }

  get count(): number {
    return this.#count;
  }

  /** Returns whether a to-do with this id fits. The id must be greater than all ids in the segment. */
  canAppend(id: TodoId): boolean {
    return !this.#isFull() && Number(id - this.firstId) <= MAX_DISTANCE;
  }

  /** Adds an encoded to-do for which `canAppend` is true. Returns the number of bytes added. */
  append(id: TodoId, json: Uint8Array): number {
    const start = this.#offset(this.#count);
    const end = start + 1 + json.length;
    this.#reserve(end);
    this.#bytes[start] = COMMA;
    this.#bytes.set(json, start + 1);
    this.#distances[this.#count] = Number(id - this.firstId);
    this.#states[this.#count] = Number(json.at(-TRUE.length) === TRUE[0]);
    this.#count++;
    this.#offsets[this.#count] = end;
    if (this.#isFull() && end < this.#bytes.length - MAX_UNUSED_BYTES)
      this.#bytes = this.#bytes.slice(0, end);
    return end - start;
  }

  findSlot(id: TodoId): number | undefined {
    const distance = Number(id - this.firstId);
    // In a segment without deletions, the slot equals the distance.
    const isDense = distance < this.#count && this.#distances[distance] === distance;
    const slot = isDense ? distance : this.#firstAtOrAfter(distance);
    return slot < this.#count && this.#distances[slot] === distance ? slot : undefined;
  }

  /** Returns the first slot with an id greater than `id`; `count` if no id is greater. */
  slotAfter(id: TodoId): number {
    if (id < this.firstId) return 0;
    return this.#firstAtOrAfter(Number(id + 1n - this.firstId));
  }

  idAt(slot: number): TodoId {
    return this.firstId + BigInt(this.#distance(slot));
  }

  /** Returns a copy of one to-do's JSON object. */
  json(slot: number): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(this.#offset(slot) + 1, this.#offset(slot + 1));
  }

  isDone(slot: number): boolean {
    return this.#states[slot] === 1;
  }

  /** Returns the first slot at or after `from` whose to-do has this `done`; `count` if none has it. */
  slotWith(done: boolean, from: number): number {
    const slot = this.#states.indexOf(Number(done), from);
    // The states after `count` are left from removed to-dos.
    return slot === -1 ? this.#count : Math.min(slot, this.#count);
  }

  /** Returns a view of the to-dos in slots `from` (inclusive) to `to` (exclusive), each with its comma. */
  view(from: number, to: number): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(this.#offset(from), this.#offset(to));
  }

  /** Inverts a to-do's `done`. Returns the number of bytes added, which may be negative. */
  toggle(slot: number): number {
    const [from, to] = this.isDone(slot) ? [TRUE, FALSE] : [FALSE, TRUE];
    const end = this.#offset(slot + 1);
    this.#shift(slot + 1, to.length - from.length);
    this.#bytes.set(to, end - from.length);
    this.#states[slot] = Number(to === TRUE);
    return to.length - from.length;
  }

  /** Removes a to-do. Returns the number of bytes added, which is negative. */
  remove(slot: number): number {
    const growth = this.#offset(slot) - this.#offset(slot + 1);
    this.#shift(slot + 1, growth);
    this.#offsets.copyWithin(slot, slot + 1, this.#count + 1);
    this.#distances.copyWithin(slot, slot + 1, this.#count);
    this.#states.copyWithin(slot, slot + 1, this.#count);
    this.#count--;
    return growth;
  }

  /** Returns an independent copy. */
  copy(generation: number): Segment {
    const copy = new Segment(this.firstId, generation);
    copy.#count = this.#count;
    copy.#distances = this.#distances.slice();
    copy.#offsets = this.#offsets.slice();
    copy.#states = this.#states.slice();
    copy.#bytes = this.#bytes.slice();
    return copy;
  }

  /** Returns whether the next segment's to-dos fit too and leave half of the capacity free. */
  canMerge(next: Segment): boolean {
    return (
      this.#count + next.#count <= CAPACITY / 2 &&
      this.#offset(this.#count) + next.#offset(next.#count) <= MAX_BYTES / 2 &&
      Number(next.idAt(next.#count - 1) - this.firstId) <= MAX_DISTANCE
    );
  }

  /** Appends the to-dos of the next segment. */
  merge(next: Segment): void {
    for (let slot = 0; slot < next.count; slot++) this.append(next.idAt(slot), next.json(slot));
  }

  #isFull(): boolean {
    return this.#count === CAPACITY || this.#offset(this.#count) >= MAX_BYTES;
  }

  #firstAtOrAfter(distance: number): number {
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#distance(middle) < distance) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Moves the bytes from a slot's start to the end by `growth` bytes, which may be negative. */
  #shift(slot: number, growth: number): void {
    const start = this.#offset(slot);
    const end = this.#offset(this.#count);
    this.#reserve(end + growth);
    this.#bytes.copyWithin(start + growth, start, end);
    for (let i = slot; i <= this.#count; i++) this.#offsets[i] = this.#offset(i) + growth;
  }

  #reserve(length: number): void {
    if (length <= this.#bytes.length) return;
    // Few steps, because a start fills many segments.
    const bytes = new Uint8Array(Math.max(length, Math.min(this.#bytes.length * 4, FULL_BYTES)));
    bytes.set(this.#bytes);
    this.#bytes = bytes;
  }

  #distance(slot: number): number {
    return this.#distances[slot] ?? 0;
  }

  #offset(slot: number): number {
    return this.#offsets[slot] ?? 0;
  }
}
