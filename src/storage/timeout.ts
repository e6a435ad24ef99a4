/** A call took too long. It may still take effect. */
export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** Rejects with the error of `late` if the work neither ends nor reports progress within `ms` milliseconds. */
export async function withTimeout<T>(
  ms: number,
  late: () => Error,
  work: (progress: () => void) => Promise<T>,
): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late()), ms);
  try {
    return await Promise.race([work(() => timer.refresh()), promise]);
  } finally {
    clearTimeout(timer);
  }
}
