import pino, { type Logger } from "pino";

/** What waits to be written when whoever reads the log is slow; beyond, lines are lost rather than memory. */
const MOST_WAITING_BYTES = 1024 * 1024;
const FLUSH_WITHIN_MS = 1000;

export interface ProcessLog {
  readonly log: Logger;
  /** Resolves when all that was logged is written, or after a second. */
  readonly flush: () => Promise<void>;
}

/** Logs to standard output: JSON lines, or readable ones on a terminal. No trouble with the log ends the process. */
export async function openLog(level: string): Promise<ProcessLog> {
  const { stdout, stderr } = process;
  const say = once((what) => stderr.write(`todo: ${what}\n`));
  stdout.on("error", (error: Error) => say(`the log cannot be written: ${error.message}`));
  // A standard error that nobody reads any more is no reason to end either.
  stderr.on("error", () => {});
  if (stdout.isTTY) {
    const { default: pretty } = await import("pino-pretty");
    const output = pretty({ ignore: "pid,hostname", translateTime: "SYS:HH:MM:ss", sync: true });
    return { log: pino({ level }, output), flush: async () => {} };
  }
  const write = (line: string): void => {
    if (stdout.writableLength > MOST_WAITING_BYTES) say("log lines are lost: whoever reads them is too slow");
    else stdout.write(line);
  };
  const flush = () =>
    new Promise<void>((resolve) => {
      setTimeout(resolve, FLUSH_WITHIN_MS);
      stdout.write("", () => resolve());
    });
  return { log: pino({ level }, { write }), flush };
}

function once(say: (text: string) => void): (text: string) => void {
  let said = false;
  return (text) => {
    if (!said) say(text);
    said = true;
  };
}
