import { LOG_LEVELS, type Log } from "../http/observability/log.ts";
import { formatJson, formatText } from "./log-line.ts";

/** Above this limit, further lines are dropped, so that a slow reader cannot exhaust memory. */
const MAX_PENDING_CHARACTERS = 1024 * 1024;
/** A write costs as much as a request, so info lines are collected for this time, or up to this length. */
const WRITE_INTERVAL_MS = 100;
const WRITE_CHARACTERS = 64 * 1024;

export interface ProcessLog {
  readonly log: Log;
  /** Resolves when all lines are written. A reader that stops reading delays it without a limit. */
  readonly flush: () => Promise<void>;
}

/**
 * Opens a log on standard output: JSON lines, or readable lines on a terminal. Info lines are written within 100 ms, other
 * lines and those on a terminal immediately. A failure to write never ends the process.
 */
export function openLog(lowest: (typeof LOG_LEVELS)[number]): ProcessLog {
  const { stdout, stderr } = process;
  const warnings = new Set<string>();
  const warnOnce = (what: string): void => {
    if (!warnings.has(what)) stderr.write(`todo: ${what}\n`);
    warnings.add(what);
  };
  stdout.on("error", (error: Error) => warnOnce(`cannot write the log: ${error.message}`));
  // Without a listener, a closed standard error would end the process.
  stderr.on("error", () => {});
  // Bun buffers unwritten output outside the stream, so that writableLength stays 0.
  let pending = 0;
  let lines = "";
  let isWaiting = false;
  let lastWrite: Promise<void> | undefined;
  const writeLines = (): void => {
    const written = lines;
    lines = "";
    if (written === "") return;
    const { promise, resolve } = Promise.withResolvers<void>();
    lastWrite = promise;
    stdout.write(written, () => {
      pending -= written.length;
      resolve();
    });
  };
  const add = (line: string): void => {
    if (pending > MAX_PENDING_CHARACTERS) {
      warnOnce("log lines are lost because standard output is read too slowly");
      return;
    }
    pending += line.length;
    lines += line;
    if (!isWaiting) writeAndWait();
    else if (lines.length > WRITE_CHARACTERS) writeLines();
  };
  const writeAndWait = (): void => {
    isWaiting = lines !== "";
    if (!isWaiting) return;
    writeLines();
    setTimeout(writeAndWait, WRITE_INTERVAL_MS).unref();
  };
  process.on("exit", writeLines);

  const format = stdout.isTTY ? formatText : formatJson;
  const writer = (level: keyof Log): Log["info"] => {
    if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(lowest)) return () => {};
    if (level === "info" && !stdout.isTTY) return (fields, message) => add(format(level, fields, message));
    return (fields, message) => {
      add(format(level, fields, message));
      writeLines();
    };
  };
  const flush = async (): Promise<void> => {
    writeLines();
    await lastWrite;
  };
  return { log: { info: writer("info"), warn: writer("warn"), error: writer("error") }, flush };
}
