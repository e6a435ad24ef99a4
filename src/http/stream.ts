/**
 * A body that is made while it is sent, at the reader's pace: the next piece is asked for when the last one
 * is on its way, and others have their turn between two pieces. A piece that cannot be made cuts the body
 * off, which the reader sees, and is told to `onError`.
 */
export function streamed(
  pieces: Iterable<Uint8Array<ArrayBuffer>> | AsyncIterable<Uint8Array<ArrayBuffer>>,
  onError: (error: unknown) => void,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const iterator = Symbol.iterator in pieces ? pieces[Symbol.iterator]() : pieces[Symbol.asyncIterator]();
  let cancelled = false;
  return new ReadableStream(
    {
      async pull(controller) {
        await new Promise(setImmediate);
        try {
          const { value, done } = await iterator.next();
          if (cancelled) return;
          if (done) controller.close();
          else controller.enqueue(value);
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
