import { type FieldError, ServiceError } from "../src/error.ts";
import type { TodoStore } from "../src/todo.ts";
import { until } from "./until.ts";

/** Returns the error that a promise rejects with. Unlike `expect(promise).rejects`, it does not block Bun's event loop. */
export async function errorOf(promise: unknown): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error("it did not reject");
}

/** Waits until a store, which checks its files once a second, finds that they are wrong. Returns the error. */
export async function refusalOf(store: TodoStore): Promise<Error> {
  let refusal: unknown;
  await until(async () => {
    try {
      await store.checkWrites?.();
    } catch (error) {
      refusal = error;
    }
    return refusal !== undefined;
  }, "the store refuses writes");
  return errorOf(Promise.reject(refusal));
}

export function errorsOf(call: () => unknown): readonly FieldError[] {
  try {
    call();
    return [];
  } catch (error) {
    if (error instanceof ServiceError && error.code === "validation_failed") return error.errors ?? [];
    throw error;
  }
}
