/** Returns the message of an Error, or any other thrown value as text. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns the `code` of an error, such as `"ENOENT"` or `"SQLITE_BUSY"`; `undefined` if it has none. */
export function getErrno(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

const FS_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or folder",
  ENOTDIR: "a part of the path is a file, not a folder",
  EISDIR: "it is a folder, not a file",
  EACCES: "permission denied",
  EPERM: "permission denied",
  EROFS: "the file system is read-only",
  ENOSPC: "no space left on device: free some space",
  EMFILE: "too many open files: raise the limit with ulimit -n",
  ENAMETOOLONG: "the name is too long: name another file",
};

/** Returns why a file cannot be used, in plain words: `"no such file or folder"`. */
export const describeFsError = (error: unknown): string =>
  FS_ERRORS[String(getErrno(error))] ?? errorMessage(error);
