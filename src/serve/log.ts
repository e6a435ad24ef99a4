import { getErrno } from "../error-message.ts";
import { escapeControls, escapeControlsJson } from "../escape-controls.ts";
import { LOG_LEVELS, type Log } from "../http/observability/log.ts";

/** Above this limit, further lines are dropped, so that a slow reader cannot exhaust memory. */
const MAX_PENDING_CHARACTERS = 1024 * 1024;
/** A write costs as much as a request, so info lines are collected for this time, or up to this length. */
const WRITE_INTERVAL_MS = 100;
const WRITE_CHARACTERS = 64 * 1024;

/** The causes that a line shows of an error. */
const MAX_CAUSES = 10;

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

/** Returns a line of the log. It never throws, whatever the error in the fields is. */
type FormatLine = (level: keyof Log, fields: object, message: string) => string;

/** Returns one JSON object: `{"level":"info","time":"2026-11-24T08:00:00.000Z","url":"http://…","msg":"listening"}`. */
export const formatJson: FormatLine = (level, fields, message) =>
  `{"level":"${level}","time":"${isoTime()}",${encode(fields, message).slice(1)}\n`;

/** Returns a line for a terminal, with the local time and the stack of an error: `08:00:00 info  listening url=http://…`. */
export const formatText: FormatLine = (level, fields, message) => {
  const time = new Date().toTimeString().slice(0, 8);
  const { msg, err, ...encoded } = JSON.parse(encode(fields, message));
  if (err !== undefined) encoded.err = String(err.stack ?? err).replace(/\s*\n\s*/g, " ");
  const shown = Object.entries(encoded).map(
    ([name, value]) => ` ${escapeControls(name)}=${formatValue(value)}`,
  );
  return `${time} ${level.padEnd(5)} ${escapeControls(msg)}${shown.join("")}\n`;
};

function formatValue(value: unknown): string {
  if (typeof value === "string" && /^[\w.:/@+-]+$/.test(value)) return value;
  return escapeControlsJson(JSON.stringify(value));
}

/** Formatting a time costs as much as encoding the fields. */
let time = { ms: 0, text: "" };

function isoTime(): string {
  const ms = Date.now();
  if (ms !== time.ms) time = { ms, text: new Date(ms).toISOString() };
  return time.text;
}

/** Returns the fields and the message as a JSON object. */
function encode(fields: object, msg: string): string {
  if (!("err" in fields)) return escapeJson(JSON.stringify({ ...fields, msg }));
  try {
    return escapeJson(JSON.stringify({ ...fields, err: describeError(fields.err), msg }));
  } catch {
    // An operator's module may throw anything.
    return escapeJson(JSON.stringify({ ...fields, err: "(cannot be encoded)", msg }));
  }
}

/**
 * Returns the messages and stacks of an error and of its causes, and its code. Leaves out other properties, because those of
 * a database driver may contain a title or a query.
 */
function describeError(error: unknown) {
  const causes: unknown[] = [];
  let cause = error;
  while (cause !== undefined && causes.length < MAX_CAUSES) {
    causes.push(cause);
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  if (causes.length === 0) return undefined;
  const describe = (describeOne: (error: Error) => string | undefined): string[] =>
    causes.map((one) => (one instanceof Error && describeOne(one)) || String(one));
  return {
    message: describe(({ message }) => message).join(": "),
    code: getErrno(error),
    stack: describe(({ stack }) => stack).join("\ncaused by: "),
  };
}

/** Escapes what may end a line or change the display of a terminal. `JSON.stringify` has escaped the controls of ASCII. */
function escapeJson(json: string): string {
  const isAscii = Buffer.byteLength(json) === json.length;
  return isAscii ? json : escapeControlsJson(json);
}
