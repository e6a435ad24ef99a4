/** The frames of a log (WAL), as https://www.sqlite.org/fileformat2.html#walformat describes them. */
import { closeSync, openSync, readSync } from "node:fs";

const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** The start of a log with little-endian checksums. Bun supports no system on which SQLite writes others. */
const MAGIC = 0x377f0682;

/**
 * Returns how many frames of a log SQLite would find after a crash: those from its start whose checksums are right. Unlike
 * the database, the log may be opened beside SQLite, because SQLite has no locks on it.
 */
export function countValidFrames(file: string): number {
  const descriptor = openSync(file, "r");
  try {
    return countIn(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function countIn(descriptor: number): number {
  const header = readAt(descriptor, 0, HEADER_BYTES);
  if (header?.getUint32(0) !== MAGIC) return 0;
  const sum = new Checksum();
  sum.add(header, 0, 24);
  if (!sum.equals(header, 24)) return 0;
  const frameBytes = FRAME_HEADER_BYTES + header.getUint32(8);
  for (let frames = 0; ; frames++) {
    const frame = readAt(descriptor, HEADER_BYTES + frames * frameBytes, frameBytes);
    if (frame === undefined) return frames;
    const isOfThisLog =
      frame.getUint32(8) === header.getUint32(16) && frame.getUint32(12) === header.getUint32(20);
    sum.add(frame, 0, 8);
    sum.add(frame, FRAME_HEADER_BYTES, frameBytes);
    if (!isOfThisLog || !sum.equals(frame, 16)) return frames;
  }
}

/** Returns a part of a file; `undefined` if the file is too short. */
function readAt(descriptor: number, position: number, length: number): DataView | undefined {
  const bytes = new Uint8Array(length);
  return readSync(descriptor, bytes, 0, length, position) === length ? new DataView(bytes.buffer) : undefined;
}

/** The running checksum of a log. */
class Checksum {
  #first = 0;
  #second = 0;

  add(view: DataView, start: number, end: number): void {
    for (let offset = start; offset < end; offset += 8) {
      this.#first = (this.#first + view.getUint32(offset, true) + this.#second) >>> 0;
      this.#second = (this.#second + view.getUint32(offset + 4, true) + this.#first) >>> 0;
    }
  }

  equals(view: DataView, offset: number): boolean {
    return view.getUint32(offset) === this.#first && view.getUint32(offset + 4) === this.#second;
  }
}
