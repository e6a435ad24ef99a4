import { escapeControls } from "../../escape-controls.ts";
import { paint } from "./terminal.ts";

/** Write errors that `writeStdout` has already passed to its caller. */
const reported = new WeakSet<Error>();

/**
 * Lets a command finish its work when standard output fails. EPIPE is ignored, because a reader such as `head` may close
 * the pipe early; other errors are reported once and set exit code 1.
 */
export function handleStdoutErrors(): void {
  let isReported = false;
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (isReported || reported.has(error) || error.code === "EPIPE") return;
    isReported = true;
    printError(`standard output: ${error.message}`);
    process.exitCode = 1;
  });
  // An error of standard error cannot be reported anywhere.
  process.stderr.on("error", () => {});
}

/** Resolves when the text is written, which applies backpressure. Rejects when it cannot be written, EPIPE included. */
export function writeStdout(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => {
      if (!error) return resolve();
      reported.add(error);
      reject(new Error(`standard output: ${error.message}`, { cause: error }));
    });
  });
}

/** Prints a message on standard error. */
export function printError(message: string): void {
  for (const line of message.split("\n"))
    process.stderr.write(`${paint("red", "todo:", process.stderr)} ${escapeControls(line)}\n`);
}
