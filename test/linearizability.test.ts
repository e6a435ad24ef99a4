import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Answer, isLinearizable, type Operation } from "./linearizability.ts";

const CALLS = ["create", "get", "finish", "reopen", "delete"] as const;
const ANSWERS = ["absent", "open", "done", "ok"] as const;

test("isLinearizable accepts many writes without a response", () => {
  const writes = Array.from(
    { length: 30 },
    (_, n): Operation => ({ call: n % 2 ? "finish" : "reopen", start: 2, end: 3, answer: undefined }),
  );
  const reads = Array.from(
    { length: 30 },
    (_, n): Operation => ({ call: "get", start: 4 + 2 * n, end: 5 + 2 * n, answer: n % 2 ? "done" : "open" }),
  );
  const created = { call: "create", start: 0, end: 1, answer: "ok" } as const;
  expect(isLinearizable([created, ...writes, ...reads])).toBe(true);
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
