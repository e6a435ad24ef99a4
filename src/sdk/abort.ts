/**
 * Returns a new signal that also aborts with another one, because React Native does not have `AbortSignal.any`. Abort it in
 * the end: this stops listening to the other one.
 */
export function linkAbort(other: AbortSignal | undefined) {
  const controller = new AbortController();
  const abort = (): void => {
    other?.removeEventListener("abort", abort);
    controller.abort();
  };
  other?.addEventListener("abort", abort);
  if (other?.aborted) abort();
  return { signal: controller.signal, abort };
}

/**
 * Returns the generator that `start` makes. Its `return()` and `throw()` abort the signal first. Otherwise they would
 * wait until a pending `next()` has its value.
 */
export function abortOnReturn<T>(
  other: AbortSignal | undefined,
  start: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  const { signal, abort } = linkAbort(other);
  const generator = (async function* () {
    try {
      yield* start(signal);
    } finally {
      abort();
    }
  })();
  const { return: end, throw: fail } = generator;
  return Object.assign(generator, {
    return: (value: Promise<void> | undefined) => {
      abort();
      return end.call(generator, value);
    },
    throw: (error: unknown) => {
      abort();
      return fail.call(generator, error);
    },
  });
}
