/** The two rules for titles, and how a server reports their violations (sections 7 and 8). */
import type { Cases } from "../case.ts";
import { type CapturedResponse, type Json, ownProperty, type TargetClient } from "../target-client.ts";

const emptyMessage = "must not be empty";
const longMessage = "must be at most 120 characters";

const blankAndLong = " ".repeat(121);
const blankTitles = [" ", "   ", "\t", "\n", "\r\n", " \t\r\n ", "\u00a0", "\u2003", "\u3000 ", blankAndLong];
const longTitles = [121, 122, 240, 5000].map((length) => "x".repeat(length));

export const cases: Cases = {
  async "title.empty.422"(client) {
    (await post(client, "")).expectStatus(422);
  },

  async "title.blank.422"(client) {
    for (const title of blankTitles) (await post(client, title)).expectStatus(422);
  },

  async "title.long.422"(client) {
    for (const title of longTitles) (await post(client, title)).expectStatus(422);
  },

  async "title.empty.message"(client) {
    for (const title of ["", "   "]) expectMessage(await post(client, title), emptyMessage);
  },

  async "title.long.message"(client) {
    expectMessage(await post(client, "x".repeat(121)), longMessage);
  },

  async "validation.field"(client) {
    for (const title of ["", "x".repeat(121)]) {
      const response = await post(client, title);
      response.expect(namesTitleField(response), 'the field name "title" with the message');
    }
  },

  // "Several may be reported together": a server may report the first violation only.
  async "validation.together"(client) {
    const response = await post(client, blankAndLong);
    const hasEither = hasMessage(response, emptyMessage) || hasMessage(response, longMessage);
    response.expect(hasEither, `the message “${emptyMessage}” or “${longMessage}”`);
  },

  async "validation.only-failed"(client) {
    const blank = await post(client, "");
    blank.expect(!hasMessage(blank, longMessage), `no message “${longMessage}”`);
    const long = await post(client, "x".repeat(121));
    long.expect(!hasMessage(long, emptyMessage), `no message “${emptyMessage}”`);
  },

  async "create.invalid.not-stored"(client) {
    const titles = ["", "   ", blankAndLong, client.uniqueTitle().padEnd(121, "x")];
    for (const title of titles) await post(client, title);
    const { response, todos } = await client.list();
    const stored = todos.some((todo) => titles.some((title) => ownProperty(todo, "title") === title));
    response.expect(!stored, "none of the rejected titles");
  },

  // é is one character and two bytes.
  async "title.characters"(client) {
    const accepted = await post(client, "é".repeat(120));
    accepted.expect(accepted.ok, "a title of 120 é to be accepted");
    const rejected = await post(client, "é".repeat(121));
    rejected.expect(!rejected.ok, "a title of 121 é to be rejected");
  },

  async "title.120"(client) {
    for (const length of [1, 119, 120]) {
      const response = await post(client, "x".repeat(length));
      response.expect(response.ok, `a title of ${length} characters to be accepted`);
    }
  },

  // The specification does not say whether the server stores the surrounding whitespace.
  async "title.padded"(client) {
    for (const [before, after] of [
      [" ", ""],
      ["", " "],
      ["\n ", "\t"],
    ]) {
      const response = await post(client, before + client.uniqueTitle() + after);
      response.expect(response.ok, "a title with surrounding whitespace to be accepted");
    }
  },
};

function post(client: TargetClient, title: string): Promise<CapturedResponse> {
  return client.send("POST", "/api/todos", { json: { title } });
}

function expectMessage(response: CapturedResponse, message: string): void {
  response.expect(hasMessage(response, message), `the message “${message}”`);
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
    const isMessage = containsMessage(text, emptyMessage) || containsMessage(text, longMessage);
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
