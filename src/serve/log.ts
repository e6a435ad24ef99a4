import { hostname } from "node:os";
import pino from "pino";
import type { Log } from "../http/observability/log.ts";

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
 * lines immediately. A failure to write never ends the process.
 */
export async function openLog(level: string): Promise<ProcessLog> {
  const { stdout, stderr } = process;
  const warnings = new Set<string>();
  const warnOnce = (what: string): void => {
    if (!warnings.has(what)) stderr.write(`todo: ${what}\n`);
    warnings.add(what);
  };
  stdout.on("error", (error: Error) => warnOnce(`cannot write the log: ${error.message}`));
  // Without a listener, a closed standard error would end the process.
  stderr.on("error", () => {});
  if (stdout.isTTY) {
    const { default: pretty } = await import("pino-pretty");
    const output = pretty({ ignore: "pid,hostname", translateTime: "SYS:HH:MM:ss", sync: true });
    return { log: pino({ level }, output), flush: async () => {} };
  }
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
  const logger = pino({ level, timestamp: pino.stdTimeFunctions.isoTime }, { write: add });
  const immediate =
    (write: Log["warn"]): Log["warn"] =>
    (fields, message) => {
      write(fields, message);
      writeLines();
    };
  const log: Log = {
    info: logger.isLevelEnabled("info") ? (fields, message) => add(infoLine(fields, message)) : () => {},
    warn: immediate((fields, message) => logger.warn(fields, message)),
    error: immediate((fields, message) => logger.error(fields, message)),
  };
  const flush = async (): Promise<void> => {
    writeLines();
    await lastWrite;
  };
  return { log, flush };
}

/** Formatting a time costs as much as encoding the fields. */
let time = { ms: 0, text: "" };
const ORIGIN = JSON.stringify({ pid: process.pid, hostname: hostname() }).slice(1, -1);

/** Returns the line that pino would write. pino joins many pieces, which costs 3 µs more. The fields contain no errors. */
function infoLine(fields: object, msg: string): string {
  const { info } = pino.levels.values;
  const ms = Date.now();
  if (ms !== time.ms) time = { ms, text: new Date(ms).toISOString() };
  return `{"level":${info},"time":"${time.text}",${ORIGIN},${JSON.stringify({ ...fields, msg }).slice(1)}\n`;
}
