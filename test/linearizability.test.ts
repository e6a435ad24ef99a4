import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Answer, isLinearizable, type Operation } from "./linearizability.ts";

/** Returns operations from lines with `call:answer`. A call lasts from its column to the end of the line; `?` means no response. */
function history(...lines: readonly string[]): Operation[] {
  return lines.map((line) => {
    const [, call = "", answer = ""] = /(\w+):(\w+|\?)/.exec(line) ?? [];
    const start = line.search(/\S/);
    return { ...named(call, answer), start, end: line.length };
  });
}

function named(call: string, answer: string): Pick<Operation, "call" | "answer"> {
  const known = CALLS.find((one) => one === call);
  if (known === undefined) throw new Error(`unknown call: ${call}`);
  return { call: known, answer: ANSWERS.find((one) => one === answer) };
}

const CALLS = ["create", "get", "finish", "reopen", "delete"] as const;
const ANSWERS = ["absent", "open", "done", "ok"] as const;

describe("isLinearizable accepts", () => {
  test.each<[what: string, ...lines: string[]]>([
    ["an empty history"],
    [
      "consecutive calls",
      "get:absent",
      "           create:ok",
      "                     finish:ok",
      "                                get:done",
      "                                        reopen:ok",
      "                                                  get:open",
      "                                                           delete:ok",
      "                                                                     get:absent",
      "                                                                                finish:absent",
    ],
    [
      "a concurrent read before the write",
      "create:ok",
      "          finish:ok---------------",
      "              get:open",
      "                       get:done",
    ],
    ["a concurrent read that returns a later write", "get:open----------", "   create:ok"],
    [
      "a write without a response that took effect",
      "create:ok",
      "          finish:?",
      "                   get:done",
    ],
    [
      "a write without a response that took effect late",
      "create:ok",
      "          finish:?",
      "                   get:open",
      "                            get:done",
    ],
    [
      "a write without a response that never took effect",
      "create:ok",
      "          delete:?",
      "                   get:open",
      "                            finish:ok",
    ],
    [
      "a repeated create without a first response",
      "create:?",
      "         create:ok",
      "                   get:open",
    ],
    [
      "a repeated create after a delete",
      "create:ok",
      "          delete:ok",
      "                    create:ok",
      "                              get:absent",
    ],
    [
      "many writes without a response",
      "create:ok",
      ...Array.from({ length: 30 }, (_, i) => `          ${i % 2 ? "finish" : "reopen"}:?`),
      ...Array.from({ length: 30 }, (_, i) => `${" ".repeat(20 + 10 * i)}get:${i % 2 ? "done" : "open"}`),
    ],
  ])("%s", (_what, ...lines) => {
    expect(isLinearizable(history(...lines))).toBe(true);
  });
});

describe("isLinearizable rejects", () => {
  test.each<[what: string, ...lines: string[]]>([
    ["a read of a to-do that was never created", "get:open"],
    ["a lost create", "create:ok", "          get:absent"],
    ["a lost write", "create:ok", "          finish:ok", "                    get:open"],
    ["a reverted delete", "create:ok", "          delete:ok", "                    get:open"],
    [
      "a stale read after a fresh one",
      "create:ok",
      "          finish:ok-----------------------",
      "             get:done",
      "                      get:open",
    ],
    ["two deletes of one to-do", "create:ok", "          delete:ok", "          delete:ok"],
    ["a change to a deleted to-do", "create:ok", "          delete:ok", "                    finish:ok"],
    ["a change that does not find an existing to-do", "create:ok", "          finish:absent"],
    [
      "a repeated create that creates a second to-do",
      "create:ok",
      "          delete:ok",
      "                    create:ok",
      "                              get:open",
    ],
    [
      "a write without a response that took effect before it was sent",
      "create:ok",
      "          get:done",
      "                   finish:?",
    ],
    [
      "a write without a response that took effect twice",
      "create:ok",
      "          finish:?",
      "                   reopen:ok",
      "                             get:done",
      "                                      reopen:ok",
      "                                                get:done",
    ],
    [
      "a write without a response that was reverted",
      "create:ok",
      "          finish:?",
      "                   get:done",
      "                            get:open",
    ],
    [
      "a create without a response that was reverted",
      "create:?",
      "         get:open",
      "                  get:absent",
    ],
  ])("%s", (_what, ...lines) => {
    expect(isLinearizable(history(...lines))).toBe(false);
  });
});

/** An operation that takes effect at one moment, or never. */
const MOMENT = fc.record({
  call: fc.constantFrom(...CALLS),
  start: fc.integer({ min: 0, max: 12 }),
  before: fc.integer({ min: 0, max: 4 }),
  behind: fc.integer({ min: 0, max: 4 }),
  isAnswered: fc.boolean(),
  takesEffect: fc.boolean(),
});
type Moment = typeof MOMENT extends fc.Arbitrary<infer Made> ? Made : never;
const MOMENTS = fc.uniqueArray(MOMENT, { maxLength: 7, selector: ({ start, before }) => start + before });

/** Returns the operations with the responses that follow from their moments. */
function happened(moments: readonly Moment[]) {
  const order = moments.toSorted((a, b) => a.start + a.before - b.start - b.before);
  const todo = new Todo();
  return order.map(({ call, start, before, behind, isAnswered, takesEffect }): Operation => {
    const answer = isAnswered || takesEffect ? todo.take(call) : undefined;
    return { call, start, end: start + before + behind, answer: isAnswered ? answer : undefined };
  });
}

/** A to-do for one client. */
class Todo {
  wasMade = false;
  done: boolean | undefined;

  take(call: Operation["call"]): Answer {
    if (call === "create") {
      if (!this.wasMade) this.done = false;
      this.wasMade = true;
      return "ok";
    }
    if (this.done === undefined) return "absent";
    if (call === "get") return this.done ? "done" : "open";
    this.done = call === "delete" ? undefined : call === "finish";
    return "ok";
  }
}

/** The definition: the operations have an order, with or without each unanswered one, in which every response is right. */
function hasOrder(history: readonly Operation[], taken: readonly Operation[] = []): boolean {
  const todo = new Todo();
  for (const { call, answer } of taken) {
    const taking = todo.take(call);
    if (answer !== undefined && taking !== answer) return false;
  }
  const left = history.filter((operation) => !taken.includes(operation));
  if (left.every(({ answer }) => answer === undefined)) return true;
  return left
    .filter(({ start }) => left.every(({ answer, end }) => answer === undefined || start <= end))
    .some((next) => hasOrder(history, [...taken, next]));
}

test("isLinearizable accepts every history of one to-do", () => {
  fc.assert(
    fc.property(MOMENTS, (moments) => {
      expect(isLinearizable(happened(moments))).toBe(true);
    }),
    { numRuns: 2000 },
  );
});

test("isLinearizable returns the same result as a search of all orders", () => {
  let rejected = 0;
  fc.assert(
    fc.property(MOMENTS, fc.nat(6), fc.constantFrom(...ANSWERS), (moments, at, answer) => {
      const history = happened(moments).map((operation, index) =>
        index === at && operation.answer !== undefined ? { ...operation, answer } : operation,
      );
      const isIt = hasOrder(history);
      expect(isLinearizable(history)).toBe(isIt);
      if (!isIt) rejected++;
    }),
    { numRuns: 2000 },
  );
  expect(rejected).toBeGreaterThan(200);
});
