import { validationError } from "./validation.ts";

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
    throw validationError(field, "must be a duration such as 90d, 2w, 24h, 15m, 30s or 0");
  }
  if (milliseconds > MAX_DURATION_MS) throw validationError(field, `must be at most ${MAX_DAYS}d`);
  return milliseconds;
}
