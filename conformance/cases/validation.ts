/** The title's two rules, and how their failures are reported (sections 7 and 8). */
import type { Cases } from "../case.ts";
import { type Answer, type Json, member, type Service } from "../service.ts";

const empty = "must not be empty";
const long = "must be at most 120 characters";

const blanks = [" ", "   ", "\t", "\n", "\r\n", " \t\r\n "];
const longTitles = [121, 122, 240, 5000].map((length) => "x".repeat(length));
const bothWrong = " ".repeat(121);

export const cases: Cases = {
  async "title.empty.422"(service) {
    (await post(service, "")).expectStatus(422);
  },

  async "title.blank.422"(service) {
    for (const title of blanks) (await post(service, title)).expectStatus(422);
  },

  async "title.long.422"(service) {
    for (const title of longTitles) (await post(service, title)).expectStatus(422);
  },

  async "title.empty.message"(service) {
    for (const title of ["", "   "]) expectMessage(await post(service, title), empty);
  },

  async "title.long.message"(service) {
    expectMessage(await post(service, "x".repeat(121)), long);
  },

  async "validation.field"(service) {
    for (const title of ["", "x".repeat(121)]) {
      const answer = await post(service, title);
      answer.expect(namesTitle(answer), 'the field name "title" with the message');
    }
  },

  async "validation.together"(service) {
    const answer = await post(service, bothWrong);
    expectMessage(answer, empty);
    expectMessage(answer, long);
  },

  async "validation.only-failed"(service) {
    const short = await post(service, "");
    short.expect(!says(short, long), `nothing of “${long}”`);
    const full = await post(service, "x".repeat(121));
    full.expect(!says(full, empty), `nothing of “${empty}”`);
  },

  async "create.invalid.not-stored"(service) {
    const titles = ["", "   ", bothWrong, service.title().padEnd(121, "x")];
    for (const title of titles) await post(service, title);
    const { answer, items } = await service.list();
    const stored = items.some((item) => titles.some((title) => member(item, "title") === title));
    answer.expect(!stored, "none of the rejected titles");
  },

  // é is one character in every count but that of its bytes.
  async "title.characters"(service) {
    const accepted = await post(service, "é".repeat(120));
    accepted.expect(accepted.ok, "120 times é to be accepted");
    const refused = await post(service, "é".repeat(121));
    refused.expect(!refused.ok, "121 times é to be refused");
  },

  async "title.120"(service) {
    for (const length of [1, 119, 120]) {
      const answer = await post(service, "x".repeat(length));
      answer.expect(answer.ok, `a title of ${length} to be accepted`);
    }
  },

  // Whether it is then stored with its blanks is open.
  async "title.padded"(service) {
    for (const title of [" x", "x ", "\n x\t"]) {
      const answer = await post(service, title);
      answer.expect(answer.ok, "a title that is more than blanks to be accepted");
    }
  },
};

function post(service: Service, title: string): Promise<Answer> {
  return service.send("POST", "/api/todos", { json: { title } });
}

function expectMessage(answer: Answer, message: string): void {
  answer.expect(says(answer, message), `the message “${message}”`);
}

/** The body's shape is open: the message is a string of its own, or stands in one together with its field's name. */
function says(answer: Answer, message: string): boolean {
  const { json } = answer;
  return json === undefined
    ? answer.text.includes(message)
    : strings(json).some(({ text }) => carries(text, message));
}

function carries(text: string, message: string): boolean {
  return text === message || (text.includes(message) && /\btitle\b/.test(text));
}

/** The name is a key above the message, or in any string; so the "title" of a problem document (RFC 9457) is none. */
function namesTitle(answer: Answer): boolean {
  const { json } = answer;
  if (json === undefined) return /\btitle\b/.test(answer.text);
  return strings(json).some(({ path, text }) => {
    const isMessage = carries(text, empty) || carries(text, long);
    return /\btitle\b/.test(text) || (isMessage && path.includes("title"));
  });
}

/** Every string in a JSON value, with the keys that lead to it. */
function strings(json: Json, path: readonly string[] = []): { path: readonly string[]; text: string }[] {
  if (typeof json === "string") return [{ path, text: json }];
  if (typeof json !== "object" || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) => strings(value, [...path, key]));
}
