/** Returns the message of an Error, or any other thrown value as text. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns an Error as it is, and any other thrown value as an Error. */
export function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Returns the `code` of an error, such as `"ENOENT"` or `"SQLITE_BUSY"`; `undefined` if it has none. */
export function getErrno(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

/** Returns why a file cannot be used, in plain words: `"no such file or folder"`. */
export function describeFsError(error: unknown): string {
  switch (getErrno(error)) {
    case "ENOENT":
      return "no such file or folder";
    case "ENOTDIR":
      return "a part of the path is a file, not a folder";
    case "EISDIR":
      return "it is a folder, not a file";
    case "EACCES":
    case "EPERM":
      return "permission denied";
    case "EROFS":
      return "the file system is read-only";
    default:
      return errorMessage(error);
  }
}
