import { getErrno } from "../error-message.ts";
import { escapeControls, escapeControlsJson } from "../escape-controls.ts";
import type { Log } from "../http/observability/log.ts";

/** Returns a line of the log. It never throws, whatever the fields contain. */
export type FormatLine = (level: keyof Log, fields: object, message: string) => string;

const MAX_CAUSES = 10;

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
  try {
    // Fast path of the access log: no field needs care.
    if (!("err" in fields || "level" in fields || "time" in fields || "msg" in fields)) {
      const json = JSON.stringify({ ...fields, msg });
      // With a method toJSON, it may be something else than an object.
      if (json.startsWith("{")) return escapeJson(json);
    }
  } catch {
    // JSON has no such value. The line says which field has it.
  }
  const members = Object.keys(fields).flatMap((name) => encodeField(fields, name) ?? []);
  return escapeJson(`{${[...members, `"msg":${JSON.stringify(msg)}`].join(",")}}`);
}

/** Returns a member of a JSON object, or `undefined` if JSON leaves it out. Its name never replaces a name of the line. */
function encodeField(fields: object, name: string): string | undefined {
  const isReserved = name === "level" || name === "time" || name === "msg";
  const member = `${JSON.stringify(isReserved ? `_${name}` : name)}:`;
  try {
    const value: unknown = Reflect.get(fields, name);
    const shown = name === "err" ? describeError(value) : value;
    const json = JSON.stringify(shown, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner));
    return json === undefined ? undefined : member + json;
  } catch {
    return `${member}"(cannot be encoded)"`;
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
