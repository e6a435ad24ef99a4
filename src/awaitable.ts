/** A value or a promise of it. Values in memory are returned without waiting for the event loop. */
export type Awaitable<T> = T | Promise<T>;

/** Returns whether a value is a promise of any realm or library. `instanceof Promise` misses foreign promises. */
export function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  return "then" in value && typeof value.then === "function";
}

/** Calls `next` with the value: synchronously, or after its promise resolves. */
export function chain<T, U>(value: T | PromiseLike<T>, next: (value: T) => Awaitable<U>): Awaitable<U> {
  return isThenable(value) ? Promise.resolve(value).then(next) : next(value);
}
