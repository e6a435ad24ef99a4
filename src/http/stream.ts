export type Bytes = Uint8Array<ArrayBuffer>;

/**
 * Returns a stream of the pieces, in chunks of at most `maxChunkBytes` bytes (unlimited by default). It reads a piece
 * only when the client takes it, and lets other requests run in between. If `pieces` throws, it calls `onError` and
 * aborts the stream, so that the client sees an incomplete body.
 */
export function toReadableStream(
  pieces: Iterable<Bytes> | AsyncIterable<Bytes>,
  onError: (error: unknown) => void,
  maxChunkBytes = Number.POSITIVE_INFINITY,
): ReadableStream<Bytes> {
  const iterator = Symbol.iterator in pieces ? pieces[Symbol.iterator]() : pieces[Symbol.asyncIterator]();
  let rest: Bytes = new Uint8Array();
  let cancelled = false;
  return new ReadableStream(
    {
      async pull(controller) {
        await new Promise(setImmediate);
        try {
          if (rest.length === 0) {
            const { value, done } = await iterator.next();
            if (cancelled) return;
            if (done) return controller.close();
            rest = value;
          }
          controller.enqueue(rest.subarray(0, maxChunkBytes));
          rest = rest.subarray(maxChunkBytes);
        } catch (error) {
          onError(error);
          controller.error(error);
        }
      },
      async cancel() {
        cancelled = true;
        await iterator.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}
