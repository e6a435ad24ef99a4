import { getErrno } from "../error-message.ts";
import { PreconditionError } from "./maintenance.ts";
import { StoreUnavailableError } from "./store.ts";

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

/** The codes of errors after which the same call may succeed later: of SQL, of the drivers, and of the system. */
const TEMPORARY = {
  /** Another connection or host may work: read-only, standby, shutdown, connection failure. */
  connection: /^(?:25006|55000|57P0[1-5]|08...|ERR_POSTGRES_(?:CONNECTION|IDLE|LIFETIME)_.+)$/,
  /** Resources may become free, such as connections, space or a lock, and an administrator may change rights. */
  resources:
    /^(?:53...|SQLITE_(?:BUSY|CANTOPEN|FULL|IOERR|LOCKED|NOMEM|PERM|PROTOCOL|READONLY).*|EACCES|EBUSY|EDQUOT|EIO|EMFILE|ENFILE|ENOENT|ENOMEM|ENOSPC|EPERM|EROFS|ESTALE)$/,
};

/**
 * Returns what has failed: the connection, which a new attempt may restore; resources, which may become free; or something
 * that stays wrong, such as a rejected password, an untrusted certificate or a damaged file.
 */
export function failureOf(error: unknown): "connection" | "resources" | "permanent" {
  if (error instanceof StoreUnavailableError || error instanceof TimeoutError) return "connection";
  // PostgreSQL has its code in errno, where errors of the system have a number.
  const errno = error instanceof Error && "errno" in error ? error.errno : undefined;
  const is = (codes: RegExp): boolean => codes.test(String(errno)) || codes.test(String(getErrno(error)));
  if (is(TEMPORARY.connection)) return "connection";
  return is(TEMPORARY.resources) ? "resources" : "permanent";
}

export const isTemporary = (error: unknown): boolean => failureOf(error) !== "permanent";

/** Returns a StoreUnavailableError if the same call may succeed later, otherwise a PreconditionError. */
export const asStoreError = (message: string, cause: unknown): Error =>
  isTemporary(cause)
    ? new StoreUnavailableError(message, { cause })
    : new PreconditionError(message, { cause });
