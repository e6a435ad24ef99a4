import { type FieldError, ServiceError } from "./error.ts";

/** Returns an own property of a JSON object; `undefined` if it is absent or the body is not an object. */
export function ownProperty(body: unknown, name: string): unknown {
  return isObject(body) && Object.hasOwn(body, name) ? body[name] : undefined;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a `validation_failed` error with one entry per message, all for the same field. */
export function validationError(field: string, ...messages: string[]): ServiceError {
  const errors: FieldError[] = messages.map((message) => ({ field, message }));
  return new ServiceError("validation_failed", { errors });
}

/** Returns an own property of a body that is a string. Throws `validation_failed`. */
export function requireText(body: unknown, field: string): string {
  const value = ownProperty(body, field);
  if (typeof value === "string") return value;
  throw validationError(field, value === undefined ? "is required" : "must be a string");
}

/** Returns the rules this text violates. A text must not be blank, too long, or contain lone surrogates. */
export function textViolations(text: string, maxLength: number): string[] {
  const messages: string[] = [];
  if (isBlank(text)) messages.push("must not be empty");
  if (longerThan(text, maxLength)) messages.push(`must be at most ${maxLength} characters`);
  if (!text.isWellFormed()) messages.push("must be well-formed Unicode, without lone surrogates");
  return messages;
}

export const isBlank = (text: string): boolean => BLANK.test(text);

// Matches all of Unicode White_Space, and U+FEFF, which JavaScript trims. `\s` lacks only U+0085.
const BLANK = /^[\s\u0085]*$/;

/** Returns whether a text has more than `max` code points. Counts them only if the UTF-16 length leaves it open. */
function longerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > max * 2) return true;
  let codePoints = 0;
  for (const _ of text) codePoints++;
  return codePoints > max;
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };
const MAX_DAYS = 36_500;
/** The longest duration, in milliseconds. */
export const MAX_DURATION_MS = MAX_DAYS * 86_400_000;
/** The latest time that a Date can represent; its negative is the earliest. */
export const MAX_TIME_MS = 8.64e15;

/** Parses a duration, such as "90d", into milliseconds. Throws `validation_failed` for the field. */
export function parseDuration(field: string, duration: unknown): number {
  if (typeof duration !== "string") throw validationError(field, "must be a string");
  if (duration === "0") return 0;
  const [, digits, unit = ""] = /^(\d+)([smhdw])$/.exec(duration) ?? [];
  const milliseconds = Number(digits) * (UNIT_SECONDS[unit] ?? Number.NaN) * 1000;
  if (Number.isNaN(milliseconds)) {
    throw validationError(field, "must be a duration such as 90d, 2w, 24h, 15m or 30s");
  }
  if (milliseconds > MAX_DURATION_MS) throw validationError(field, `must be at most ${MAX_DAYS}d`);
  return milliseconds;
}
