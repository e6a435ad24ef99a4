import pino, { type Logger } from "pino";

/** Above this limit, further lines are dropped, so that a slow reader cannot exhaust memory. */
const MAX_PENDING_CHARACTERS = 1024 * 1024;
const FLUSH_TIMEOUT_MS = 1000;

export interface ProcessLog {
  readonly log: Logger;
  /** Resolves when all lines are written, at the latest after one second. */
  readonly flush: () => Promise<void>;
}

/** Opens a log on standard output: JSON lines, or readable lines on a terminal. A failure to write never ends the process. */
export async function openLog(level: string): Promise<ProcessLog> {
  const { stdout, stderr } = process;
  const warn = (what: string): void => void stderr.write(`todo: ${what}\n`);
  const warnUnwritable = once((reason: string) => warn(`cannot write the log: ${reason}`));
  const warnLost = once(() => warn("log lines are lost because standard output is read too slowly"));
  stdout.on("error", (error: Error) => warnUnwritable(error.message));
  // Without a listener, a closed standard error would end the process.
  stderr.on("error", () => {});
  if (stdout.isTTY) {
    const { default: pretty } = await import("pino-pretty");
    const output = pretty({ ignore: "pid,hostname", translateTime: "SYS:HH:MM:ss", sync: true });
    return { log: pino({ level }, output), flush: async () => {} };
  }
  // Bun buffers unwritten output outside the stream, so that writableLength stays 0.
  let pending = 0;
  const write = (line: string): void => {
    if (pending > MAX_PENDING_CHARACTERS) {
      warnLost();
      return;
    }
    pending += line.length;
    stdout.write(line, () => {
      pending -= line.length;
    });
  };
  const flush = () =>
    new Promise<void>((resolve) => {
      setTimeout(resolve, FLUSH_TIMEOUT_MS);
      stdout.write("", () => resolve());
    });
  return { log: pino({ level }, { write }), flush };
}

/** Returns a function that forwards only its first call. */
function once<Arguments extends readonly unknown[]>(
  call: (...given: Arguments) => void,
): (...given: Arguments) => void {
  let called = false;
  return (...given) => {
    if (called) return;
    called = true;
    call(...given);
  };
}
