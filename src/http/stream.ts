/**
 * A body that is made while it is sent, at the reader's pace: the next piece is asked for when the last one
 * is on its way, and others have their turn between two pieces.
 */
export function streamed(
  pieces: Iterable<Uint8Array<ArrayBuffer>> | AsyncIterable<Uint8Array<ArrayBuffer>>,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const iterator = Symbol.iterator in pieces ? pieces[Symbol.iterator]() : pieces[Symbol.asyncIterator]();
  return new ReadableStream(
    {
      async pull(controller) {
        await new Promise(setImmediate);
        const { value, done } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await iterator.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}
