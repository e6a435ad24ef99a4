/** The formats of a WAL and of its index in shared memory (https://www.sqlite.org/walformat.html). */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import type { FileIdentity } from "./files.ts";

const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const INDEX_HEADER_BYTES = 48;
/** The number of frames that are read at once, because few large reads are faster. */
const READ_FRAMES = 8;
/** Holds the longest pages that SQLite has. */
const BUFFER = Buffer.alloc(READ_FRAMES * (FRAME_HEADER_BYTES + 65_536));

/** The committed frames of a WAL. */
export interface Frames {
  readonly count: number;
  /** Differ for each time that SQLite has started the WAL again. */
  readonly salts: Buffer;
  /** The checksum of the last frame, which covers all frames before it. */
  readonly checksum: readonly [number, number];
}

export const NO_FRAMES: Frames = { count: 0, salts: Buffer.alloc(0), checksum: [0, 0] };

/** The index of a WAL. Its descriptor stays open, because closing it would drop SQLite's locks. */
export class WalIndex {
  readonly identity: FileIdentity;
  readonly #descriptor: number;
  readonly #header = Buffer.alloc(INDEX_HEADER_BYTES);

  constructor(path: string) {
    this.#descriptor = openSync(path, "r");
    this.identity = fstatSync(this.#descriptor, { bigint: true });
  }

  /** Takes less than a microsecond. Integers are in the byte order of the machine, but the salts are copied from the WAL. */
  read(): Frames {
    const header = this.#header;
    readSync(this.#descriptor, header, { position: 0 });
    return {
      count: header.readUInt32LE(16),
      checksum: [header.readUInt32LE(24), header.readUInt32LE(28)],
      salts: Buffer.from(header.subarray(32, 40)),
    };
  }

  /** To be called when no connection of this process is open. */
  close(): void {
    closeSync(this.#descriptor);
  }
}

/**
 * Returns whether a WAL has all frames of its index, and ends with the last one.
 * @param checked the frames that an earlier call has found; only the last one of them is read again, because every change
 * but one in the middle removes it
 * @param pages receives the numbers of the pages in the WAL with the index of their latest frame
 */
export function hasFrames(
  path: string,
  { count, salts, checksum }: Frames,
  checked: Frames,
  pages: Map<number, number>,
): boolean {
  if (count === 0) return true;
  const descriptor = openSync(path, "r");
  try {
    const header = Buffer.alloc(WAL_HEADER_BYTES);
    readSync(descriptor, header, { position: 0 });
    if (salts.compare(header, 16, 24) !== 0) return false;
    const first = salts.equals(checked.salts) && count >= checked.count ? Math.max(checked.count - 1, 0) : 0;
    let last: Buffer | undefined;
    let read = first;
    if (first === 0) pages.clear();
    for (const frame of readFrames(descriptor, header.readUInt32BE(8), first, count)) {
      if (salts.compare(frame, 8, 16) !== 0) return false;
      last = frame;
      pages.set(frame.readUInt32BE(0), read++);
    }
    return read === count && last?.readUInt32BE(16) === checksum[0] && last.readUInt32BE(20) === checksum[1];
  } finally {
    closeSync(descriptor);
  }
}

/** Reads the page in a frame of a WAL. */
export function readFrame(path: string, frame: number, pageSize: number): Buffer {
  const descriptor = openSync(path, "r");
  try {
    return readAt(
      descriptor,
      WAL_HEADER_BYTES + frame * (FRAME_HEADER_BYTES + pageSize) + FRAME_HEADER_BYTES,
      pageSize,
    );
  } finally {
    closeSync(descriptor);
  }
}

/** Reads bytes at a position of a file; fewer at its end. */
export function readAt(descriptor: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  return bytes.subarray(0, readSync(descriptor, bytes, { position }));
}

/** Yields the headers of the frames of a WAL from an index to another. */
function* readFrames(descriptor: number, pageSize: number, first: number, end: number): Generator<Buffer> {
  const frameBytes = FRAME_HEADER_BYTES + pageSize;
  for (let frame = first; frame < end; ) {
    const frames = BUFFER.subarray(0, Math.min(READ_FRAMES, end - frame) * frameBytes);
    const bytes = readSync(descriptor, frames, { position: WAL_HEADER_BYTES + frame * frameBytes });
    if (bytes < frameBytes) return;
    for (let at = 0; at + frameBytes <= bytes; at += frameBytes, frame++)
      yield frames.subarray(at, at + FRAME_HEADER_BYTES);
  }
}
