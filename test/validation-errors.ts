import { type FieldError, ServiceError } from "../src/error.ts";

/** Returns the validation errors that a call throws; none if it returns. */
export function errorsOf(call: () => unknown): readonly FieldError[] {
  try {
    call();
    return [];
  } catch (error) {
    if (error instanceof ServiceError && error.code === "validation_failed") return error.errors ?? [];
    throw error;
  }
}
