import { isIPv6 } from "node:net";
import { parseDuration } from "../validation.ts";
import { readText } from "./text-file.ts";

/** The variables of the process, by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** A value, and what it comes from, for error messages. */
export interface Sourced<Value = string> {
  readonly value: Value;
  /** The flag or variable, such as `--users-file` or `TODO_USERS_FILE`; of a default, both: `--port or TODO_PORT`. */
  readonly source: string;
}

/** Returns a parser whose values have their source. */
export const sourced =
  <Value>(parse: (text: string) => Value) =>
  (text: string, source: string): Sourced<Value> => ({ value: parse(text), source });

/** Returns what names a file in a message: `--users-file "users"`. */
export const describeFile = ({ value, source }: Sourced): string => `${source} "${value}"`;

/** Quotes a value for a message, without what may be secret in a URL: `"…@todo.example.com"`. */
export const quoteValue = (text: string): string =>
  JSON.stringify(text.replace(/^.*@/s, "…@").replace(/[?#].*/s, "…"));

/** Accepts any text without control characters, which a file of variables from Windows has at the end of each line. */
export function plainText(text: string): string {
  if (/\p{Cc}/u.test(text)) throw new Error("must be one line without control characters, such as CR");
  return text;
}

/** Returns the text of a file with one line, without the line breaks after it. */
export function fileText(path: string): string {
  const text = readText(path).replace(/[\r\n]+$/, "");
  if (text === "") throw new Error("the file is empty");
  return plainText(text);
}

export function userName(text: string): string {
  if (text.includes(":")) throw new Error("a user name cannot contain a colon (RFC 7617 section 2)");
  return plainText(text);
}

export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (!(number >= min && number <= max)) throw new Error(`must be a whole number from ${min} to ${max}`);
    return number;
  };
}

/** Returns a duration in milliseconds. */
export function interval(text: string): number {
  const ms = parseDuration("interval", text);
  if (ms === 0) throw new Error("must be longer than 0");
  return ms;
}

export function onOrOff(text: string): boolean {
  if (/^(?:1|true|on|yes)$/i.test(text)) return true;
  if (/^(?:0|false|off|no)$/i.test(text)) return false;
  throw new Error("must be on or off");
}

export function oneOf<Value extends string>(values: readonly Value[]): (text: string) => Value {
  return (text) => {
    const value = values.find((one) => one === text);
    if (value === undefined) throw new Error(`must be one of ${values.join(", ")}`);
    return value;
  };
}

export function list(text: string): string[] {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
}

export function serviceUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    url.username + url.password + url.search + url.hash !== ""
  )
    throw new Error("must be the URL of a service, such as https://todo.example.com");
  return url.href.replace(/\/+$/, "");
}

export function bearerToken(text: string): string {
  if (/^[!-+\--~]+$/.test(text)) return text;
  throw new Error("must be visible ASCII characters without spaces or commas");
}

/**
 * Rejects `*` and other names that cannot be resolved, because the runtime and its resolver would disagree on them, and
 * addresses with a zone, because no URL can contain one.
 */
export function hostName(text: string): string {
  const isAddress = isIPv6(text.replace(/^\[(.*)\]$/, "$1")) && !text.includes("%");
  if (isAddress || /^[\w.-]+$/.test(text)) return text;
  throw new Error(
    "must be a host name or an IP address, such as 127.0.0.1, or 0.0.0.0 for all addresses of this machine",
  );
}

/** Returns a Host header value in the form that browsers send: a name or an address, with the port unless it is the default. */
export function hostValue(text: string): string {
  const url = /^[^/?#@\s*]+$/.test(text) ? URL.parse(`http://${text}`) : null;
  if (url !== null) return url.host;
  throw new Error(`${quoteValue(text)} is not a Host header value, such as todo.example.com or mybox:3000`);
}

/** Matches the origin of an app, such as `capacitor://localhost`. Of such a scheme, `URL` knows no origin. */
const APP_ORIGIN = /^[a-z][a-z\d+.-]*:\/\/(?:[a-z\d._-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/;

/** Checks an origin as browsers and apps send it: scheme, host and port without a path. */
export function origin(text: string): string {
  if (text.includes("*"))
    throw new Error(`${quoteValue(text)} has a wildcard. List each origin, such as https://app.example.com`);
  const known = URL.parse(text)?.origin;
  if (known === text || (known === "null" && APP_ORIGIN.test(text))) return text;
  throw new Error(
    `${quoteValue(text)} is not an origin, such as https://app.example.com or capacitor://localhost`,
  );
}
