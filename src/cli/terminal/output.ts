import type { Readable, Writable } from "node:stream";
import { styleText } from "node:util";
import type { Environment } from "../../config/setting-values.ts";
import { CommandError } from "../../config/usage-error.ts";
import { getErrno } from "../../error-message.ts";
import { escapeControls } from "../../escape-controls.ts";
import type { OnProgress } from "../../storage/maintenance.ts";

/** Standard output or standard error of a command. */
export interface Output extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** What commands use of their process. */
export interface CommandProcess {
  readonly env: Environment;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Output;
  readonly stderr: Output;
  exitCode?: number | string | null | undefined;
  readonly once: (signal: "SIGINT" | "SIGTERM", listener: () => void) => unknown;
}

const FALLBACK_WIDTH = 80;

/** Returns text of at most this many columns, with an ellipsis if it was cut. */
export function truncate(text: string, columns: number): string {
  // Bun.sliceAnsi with an ellipsis returns too many columns for wide characters.
  if (Bun.stringWidth(text) <= columns) return text;
  // Made only here, because its tables take a megabyte.
  const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  let kept = "";
  let width = 0;
  for (const { segment } of graphemes.segment(text)) {
    width += Bun.stringWidth(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}

/** Returns the width of a terminal; a pipe or a file has no limit. */
export const getColumns = ({ isTTY, columns }: Pick<Output, "isTTY" | "columns">): number =>
  isTTY ? columns || FALLBACK_WIDTH : Number.POSITIVE_INFINITY;

/** Returns colored text if the stream is a terminal; NO_COLOR and FORCE_COLOR override that. */
export const paint = (style: "dim" | "red", text: string, stream: Output): string =>
  styleText(style, text, { stream });

/** Write errors that `writeStdout` has already passed to its caller. */
const reported = new WeakSet<Error>();

/**
 * Lets a command finish its work when standard output fails. EPIPE is ignored, because a reader such as `head` may close
 * the pipe early; other errors are reported once and set exit code 1.
 */
export function handleStdoutErrors(process: CommandProcess): void {
  let isReported = false;
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (isReported || reported.has(error) || error.code === "EPIPE") return;
    isReported = true;
    printError(process, `standard output: ${error.message}`);
    process.exitCode = 1;
  });
  // An error of standard error cannot be reported anywhere.
  process.stderr.on("error", () => {});
}

/** The reader of standard output, such as `head`, has closed the pipe. The command ends without a message. */
export class ClosedPipeError extends CommandError {}

/** Resolves when the text is written, which applies backpressure. Rejects when it cannot be written, EPIPE included. */
export function writeStdout({ stdout }: Pick<CommandProcess, "stdout">, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error) => {
      if (!error) return resolve();
      reported.add(error);
      const message = `standard output: ${error.message}`;
      reject(
        getErrno(error) === "EPIPE" ? new ClosedPipeError(message) : new Error(message, { cause: error }),
      );
    });
  });
}

/** Prints a message on standard error. */
export function printError({ stderr }: Pick<CommandProcess, "stderr">, message: string): void {
  for (const line of message.split("\n"))
    stderr.write(`${paint("red", "todo:", stderr)} ${escapeControls(line)}\n`);
}

const FIRST_MS = 1000;
const INTERVAL_MS = 200;

/**
 * A line of a terminal that shows how far long work is, from the first second on, such as
 * `importing: 412,000 of 1,000,000 to-dos, 52,000/s`. In a pipe, it shows nothing.
 */
export class ProgressLine {
  readonly #output: Pick<Output, "isTTY" | "columns" | "write">;
  readonly #now: () => number;
  /** When the next update is due, in milliseconds of the clock. */
  #due: number;
  #isShown = false;
  /** The step under way, and what was done of it when it was reported for the first time. */
  #step = { name: "", since: 0, before: 0 };

  constructor(output: Pick<Output, "isTTY" | "columns" | "write">, now = () => performance.now()) {
    this.#output = output;
    this.#now = now;
    this.#due = now() + FIRST_MS;
  }

  readonly report: OnProgress = (name, done, total) => {
    if (!this.#output.isTTY) return;
    const now = this.#now();
    if (name !== this.#step.name) this.#step = { name, since: now, before: done };
    if (done === total) this.clear();
    else if (now >= this.#due) this.#show(done, total, now);
  };

  /** Removes the line, so that other text can follow. */
  clear(): void {
    if (this.#isShown) this.#output.write("\r\x1b[K");
    this.#isShown = false;
  }

  #show(done: number, total: number | undefined, now: number): void {
    const { name, since, before } = this.#step;
    const amount = total === undefined ? format(done) : `${format(done)} of ${format(total)}`;
    const rate = now > since ? `, ${format(((done - before) / (now - since)) * 1000)}/s` : "";
    const line = truncate(`${name}: ${amount} to-dos${rate}`, getColumns(this.#output) - 1);
    this.#output.write(`\r${line}\x1b[K`);
    this.#isShown = true;
    this.#due = now + INTERVAL_MS;
  }
}

const format = (count: number): string => Math.round(count).toLocaleString("en-US");
