/** The messages of a rejected title (section 7). The specification does not show the shape of the body, so any is accepted. */
import type { Json } from "./json.ts";
import type { CapturedResponse } from "./target-client.ts";
import type { Verdict } from "./title.ts";

const BLANK_MESSAGE = "must not be empty";
const LONG_MESSAGE = "must be at most 120 characters";

/** Expects a message for a violated rule, none for a rule that is not violated, and the name of the field. */
export function expectMessages(response: CapturedResponse, { blank, long }: Verdict): void {
  const [hasBlank, hasLong] = [hasMessage(response, BLANK_MESSAGE), hasMessage(response, LONG_MESSAGE)];
  const unexpected =
    blank === false && hasBlank ? BLANK_MESSAGE : long === false && hasLong ? LONG_MESSAGE : "";
  response.expect(unexpected === "", `no message “${unexpected}”`, "validation.only-failed");
  // "Several may be reported together": a server may report the first violation only.
  if (long === false) response.expect(hasBlank, `the message “${BLANK_MESSAGE}”`, "title.empty.message");
  else if (blank === false) response.expect(hasLong, `the message “${LONG_MESSAGE}”`, "title.long.message");
  const either = `the message “${BLANK_MESSAGE}” or “${LONG_MESSAGE}”`;
  response.expect(hasBlank || hasLong, either, "validation.together");
  response.expect(namesTitleField(response), 'the field name "title" with the message', "validation.field");
}

/** Returns whether a string in the body is the message, or contains the message and the name of the field. */
function hasMessage(response: CapturedResponse, message: string): boolean {
  const { json } = response;
  return json === undefined
    ? response.text.includes(message)
    : collectStrings(json).some(({ text }) => containsMessage(text, message));
}

function containsMessage(text: string, message: string): boolean {
  return text === message || (text.includes(message) && /\btitle\b/.test(text));
}

/** Returns whether a string contains the field's name, or a key of a message is the name. The `title` of RFC 9457 is neither. */
function namesTitleField(response: CapturedResponse): boolean {
  const { json } = response;
  if (json === undefined) return /\btitle\b/.test(response.text);
  return collectStrings(json).some(({ path, text }) => {
    const isMessage = containsMessage(text, BLANK_MESSAGE) || containsMessage(text, LONG_MESSAGE);
    return /\btitle\b/.test(text) || (isMessage && path.includes("title"));
  });
}

/** Returns every string in a JSON value with the keys that lead to it. */
function collectStrings(
  json: Json,
  path: readonly string[] = [],
): { path: readonly string[]; text: string }[] {
  if (typeof json === "string") return [{ path, text: json }];
  if (typeof json !== "object" || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) => collectStrings(value, [...path, key]));
}
