import { validationError } from "../validation.ts";

/**
 * What a client may do in private mode. `read`: read to-dos and subscribe to events; `write`: also change to-dos. Without
 * private mode, to-dos are open to everyone and scopes have no effect.
 */
export type Scope = "read" | "write";

/** Validates a scope. Returns `write` for `undefined`; throws `validation_failed` for any other value. */
export function parseScope(scope: unknown = "write"): Scope {
  if (isScope(scope)) return scope;
  throw validationError("scope", 'must be "read" or "write"');
}

export const isScope = (value: unknown): value is Scope => value === "read" || value === "write";
