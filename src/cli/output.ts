/** Failures of standard output that a caller of `written` has been told of. */
const told = new WeakSet<Error>();

/**
 * Lets a command finish its work when nobody can read what it says of it. That a reader has had enough, as head has, is
 * no failure; anything else is said, and makes the exit code 1.
 */
export function watchOutput(): void {
  let isSaid = false;
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (isSaid || told.has(error) || error.code === "EPIPE") return;
    isSaid = true;
    process.stderr.write(`todo: standard output: ${error.message}\n`);
    process.exitCode = 1;
  });
  // There is nowhere left to say it.
  process.stderr.on("error", () => {});
}

/** Resolves when a text has gone out, at the pace of whoever reads it; rejects, as EPIPE too, when it cannot. */
export function written(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => {
      if (!error) return resolve();
      told.add(error);
      reject(new Error(`standard output: ${error.message}`, { cause: error }));
    });
  });
}
