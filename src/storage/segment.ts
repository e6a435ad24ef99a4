import type { TodoId } from "../todo.ts";

/** How many to-dos a segment takes: some 50 KB, cheap to copy for a write and large enough to stream. */
const CAPACITY = 1024;
const FIRST_BYTES = 4096;
const MAX_DISTANCE = 0xffff_ffffn;
const TRUE = new TextEncoder().encode("true}");
const FALSE = new TextEncoder().encode("false}");
const COMMA = 0x2c;
const encoder = new TextEncoder();

/**
 * Up to a thousand to-dos by ascending id, encoded one after the other, each with a comma before it, so that
 * segments in a row are the inside of a JSON array. A slot is the place of a to-do among them.
 */
export class Segment {
  /** No to-do in here, nor to come, has a smaller id. */
  readonly firstId: TodoId;
  /** When it was made, by the clock of its store. */
  readonly stamp: number;
  #count = 0;
  /** How far each to-do's id is from `firstId`. */
  #distances = new Uint32Array(CAPACITY);
  /** Where each to-do's bytes start; the last one's end comes after. */
  #offsets = new Uint32Array(CAPACITY + 1);
  #bytes = new Uint8Array(FIRST_BYTES);

  constructor(firstId: TodoId, stamp: number) {
    this.firstId = firstId;
    this.stamp = stamp;
  }

  get count(): number {
    return this.#count;
  }

  /** Whether there is room for a to-do with this id, greater than all in here. */
  takes(id: TodoId): boolean {
    return this.#count < CAPACITY && id - this.firstId <= MAX_DISTANCE;
  }

  /** Adds a to-do that `takes` let in; returns by how many bytes the segment grew. */
  append(id: TodoId, json: string): number {
    const start = this.#offset(this.#count);
    // A UTF-16 unit becomes at most three bytes of UTF-8.
    this.#reserve(start + 1 + json.length * 3);
    this.#bytes[start] = COMMA;
    const end = start + 1 + encoder.encodeInto(json, this.#bytes.subarray(start + 1)).written;
    this.#distances[this.#count] = Number(id - this.firstId);
    this.#count++;
    this.#offsets[this.#count] = end;
    if (this.#count === CAPACITY) this.#bytes = this.#bytes.slice(0, end);
    return end - start;
  }

  slotOf(id: TodoId): number | undefined {
    const distance = Number(id - this.firstId);
    // Where nothing was taken out, a to-do's slot is its distance.
    const isDense = distance < this.#count && this.#distances[distance] === distance;
    const slot = isDense ? distance : this.#firstAtOrAfter(distance);
    return slot < this.#count && this.#distances[slot] === distance ? slot : undefined;
  }

  /** The first slot with an id greater than `id`; `count` when there is none. */
  slotAfter(id: TodoId): number {
    return this.#firstAtOrAfter(Number(id + 1n - this.firstId));
  }

  idAt(slot: number): TodoId {
    return this.firstId + BigInt(this.#distance(slot));
  }

  /** A copy of one to-do's JSON object. */
  json(slot: number): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(this.#offset(slot) + 1, this.#offset(slot + 1));
  }

  isDone(slot: number): boolean {
    return this.#bytes[this.#offset(slot + 1) - TRUE.length] === TRUE[0];
  }

  /** The bytes of the to-dos from one slot up to another, each with its comma; not a copy. */
  view(from: number, to: number): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(this.#offset(from), this.#offset(to));
  }

  /** Turns a to-do's `done` over; returns by how many bytes the segment grew. */
  toggle(slot: number): number {
    const [from, to] = this.isDone(slot) ? [TRUE, FALSE] : [FALSE, TRUE];
    const end = this.#offset(slot + 1);
    this.#shift(slot + 1, to.length - from.length);
    this.#bytes.set(to, end - from.length);
    return to.length - from.length;
  }

  /** Takes a to-do out; returns by how many bytes the segment grew: less than none. */
  remove(slot: number): number {
    const growth = this.#offset(slot) - this.#offset(slot + 1);
    this.#shift(slot + 1, growth);
    this.#offsets.copyWithin(slot, slot + 1, this.#count + 1);
    this.#distances.copyWithin(slot, slot + 1, this.#count);
    this.#count--;
    return growth;
  }

  /** A segment of its own with the same to-dos. */
  copy(stamp: number): Segment {
    const copy = new Segment(this.firstId, stamp);
    copy.#count = this.#count;
    copy.#distances = this.#distances.slice();
    copy.#offsets = this.#offsets.slice();
    copy.#bytes = this.#bytes.slice();
    return copy;
  }

  /** Whether the to-dos of the segment behind it fit in here too, with half of the room to spare. */
  hasRoomFor(next: Segment): boolean {
    return (
      this.#count + next.#count <= CAPACITY / 2 && next.idAt(next.#count - 1) - this.firstId <= MAX_DISTANCE
    );
  }

  /** Takes over the to-dos of the segment behind it. */
  absorb(next: Segment): void {
    const gap = Number(next.firstId - this.firstId);
    const start = this.#offset(this.#count);
    const added = next.view(0, next.#count);
    this.#reserve(start + added.length);
    this.#bytes.set(added, start);
    for (let slot = 0; slot < next.#count; slot++) {
      this.#distances[this.#count] = gap + next.#distance(slot);
      this.#count++;
      this.#offsets[this.#count] = start + next.#offset(slot + 1);
    }
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

  /** Moves what follows a slot's start to make `growth` bytes of room before it, or to close a gap. */
  #shift(slot: number, growth: number): void {
    const start = this.#offset(slot);
    const end = this.#offset(this.#count);
    this.#reserve(end + growth);
    this.#bytes.copyWithin(start + growth, start, end);
    for (let i = slot; i <= this.#count; i++) this.#offsets[i] = this.#offset(i) + growth;
  }

  #reserve(length: number): void {
    if (length <= this.#bytes.length) return;
    const bytes = new Uint8Array(Math.max(length, Math.ceil(this.#bytes.length * 1.5)));
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
