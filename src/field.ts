import { Failure, type FieldError } from "./failure.ts";

/** An own member of a JSON object; `undefined` when there is none, or when the body is no object at all. */
export function member(body: unknown, name: string): unknown {
  return isObject(body) && Object.hasOwn(body, name) ? body[name] : undefined;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A field that breaks rules, as a Failure. */
export function invalid(field: string, ...messages: string[]): Failure {
  const errors: FieldError[] = messages.map((message) => ({ field, message }));
  return new Failure("validation_failed", { errors });
}

/** The rules that every text of a person's breaks: it is more than blanks, of some length, and can be written as UTF-8. */
export function brokenTextRules(text: string, maxLength: number): string[] {
  const messages: string[] = [];
  if (isBlank(text)) messages.push("must not be empty");
  if (longerThan(text, maxLength)) messages.push(`must be at most ${maxLength} characters`);
  if (!text.isWellFormed()) messages.push("must be well-formed Unicode, without lone surrogates");
  return messages;
}

export const isBlank = (text: string): boolean => BLANK.test(text);

// What JavaScript trims is Unicode White_Space without U+0085 and with U+FEFF: blank is either.
const BLANK = /^[\s\u0085]*$/;

/** Counts code points, not UTF-16 units, and only where the two can tell a different story. */
function longerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  if (text.length > max * 2) return true;
  let codePoints = 0;
  for (const _ of text) codePoints++;
  return codePoints > max;
}
