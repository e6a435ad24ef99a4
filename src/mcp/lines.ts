const LINE_FEED = 0x0a;

/**
 * Yields the lines of a stream without their line feeds, and the last one also if it has none. Yields `undefined` for a
 * line of more than `maxBytes`, of which it keeps nothing.
 */
export async function* readLines(
  input: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Uint8Array | undefined, void, undefined> {
  let parts: Uint8Array[] = [];
  let length = 0;
  const append = (part: Uint8Array): void => {
    length += part.byteLength;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  };
  const take = (): Uint8Array | undefined => {
    const line = length > maxBytes ? undefined : Buffer.concat(parts, length);
    parts = [];
    length = 0;
    return line;
  };
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      append(chunk.subarray(start, end));
      yield take();
      start = end + 1;
    }
    append(chunk.subarray(start));
  }
  if (length > 0) yield take();
}
