import { TodoApiError } from "../src/sdk/client.ts";
import { hasNoResponse } from "./state.ts";
import { errorMessage } from "./undoable-changes.ts";

/** Returns a random idempotency key. Pages over plain HTTP do not have `crypto.randomUUID`. */
export const randomKey = (): string => crypto.getRandomValues(new Uint32Array(4)).join("-");

/** Returns how to report a to-do that was not confirmed. */
export function describeAddError(error: unknown): {
  /** For the field that contains the title. */
  readonly fieldMessage: string;
  /** For a message that names the title. */
  readonly outcome: string;
  readonly reason: string;
  readonly isUnreachable: boolean;
} {
  const isUnreachable = hasNoResponse(error);
  const violations = error instanceof TodoApiError ? error.fields.map(({ message }) => message) : [];
  const outcome = isRejected(error) ? "could not be added" : "may not have been added";
  if (violations.length > 0) {
    const reason = `The title ${violations.join(" and ")}.`;
    return { fieldMessage: reason, outcome, reason, isUnreachable };
  }
  const reason = errorMessage(error);
  if (isRejected(error))
    return { fieldMessage: `It could not be added: ${reason}`, outcome, reason, isUnreachable };
  const cause = isUnreachable
    ? "No answer, so it may not have been added."
    : `It may not have been added: ${reason}`;
  const fieldMessage = `${cause} Press Enter to try again; it won't be added twice.`;
  return { fieldMessage, outcome, reason, isUnreachable };
}

/** Returns whether the service certainly did not create the to-do. A lost response or a server error leaves that open. */
const isRejected = (error: unknown): boolean =>
  error instanceof TodoApiError &&
  (error.code === "store_full" || (error.status !== undefined && error.status >= 400 && error.status < 500));
