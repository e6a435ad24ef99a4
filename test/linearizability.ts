/** Something that was asked of one to-do, and what came of it. */
export interface Operation {
  readonly call: "create" | "get" | "finish" | "reopen" | "delete";
  /** `undefined` when there was no answer: it may have taken effect, may still do, or never. */
  readonly answer: Answer | undefined;
  /** When it was asked and when it was answered, by one clock. */
  readonly start: number;
  readonly end: number;
}

/** What `get` finds, or whether another call did what it was to do. */
export type Answer = "absent" | "open" | "done" | "ok";

type State = "none" | "open" | "done" | "deleted";

/**
 * Whether one to-do, that is not there at first, can have been what the operations on it say: each took effect at
 * one moment between its start and its end. A create that is sent again finds its to-do made.
 */
export function isLinearizable(history: readonly Operation[]): boolean {
  const byStart = history.toSorted((a, b) => a.start - b.start);
  const answered = byStart.filter(({ answer }) => answer !== undefined);
  const unanswered = byStart.filter(({ answer }) => answer === undefined);
  const seen = new Set<string>();
  const left: Search[] = [{ state: "none", first: 0, done: 0n, used: [] }];
  for (let search = left.pop(); search !== undefined; search = left.pop()) {
    if (search.first === answered.length) return true;
    const key = `${search.state} ${search.first} ${search.done} ${search.used}`;
    if (seen.has(key)) continue;
    seen.add(key);
    left.push(...steps(search, answered, unanswered));
  }
  return false;
}

/** How far an order of the operations has been put together. */
interface Search {
  readonly state: State;
  /** The answered operations up to here are in it, */
  readonly first: number;
  /** and of those from here on the ones with a bit. */
  readonly done: bigint;
  /** The unanswered operations that are in it. */
  readonly used: readonly number[];
}

/** Every operation that may come next: it was asked before any that is left was answered. */
function* steps(
  search: Search,
  answered: readonly Operation[],
  unanswered: readonly Operation[],
): Generator<Search> {
  const { state, first, done, used } = search;
  let firstEnd = Number.POSITIVE_INFINITY;
  const next: number[] = [];
  for (let i = first; i < answered.length; i++) {
    const operation = answered[i];
    if (operation === undefined || operation.start > firstEnd) break;
    if ((done >> BigInt(i - first)) & 1n) continue;
    firstEnd = Math.min(firstEnd, operation.end);
    next.push(i);
  }
  // Of unanswered ones that are alike, the first will do, and only when it changes anything.
  const calls = new Set<Operation["call"]>();
  for (const [i, { call, start }] of unanswered.entries()) {
    if (start > firstEnd) break;
    if (used.includes(i) || calls.has(call)) continue;
    calls.add(call);
    const outcome = take(state, call);
    if (outcome.state !== state) yield { ...search, state: outcome.state, used: [...used, i].toSorted() };
  }
  for (const i of next) {
    const operation = answered[i];
    if (operation === undefined || operation.start > firstEnd) continue;
    const outcome = take(state, operation.call);
    if (outcome.answer !== operation.answer) continue;
    yield { state: outcome.state, used, ...withDone(first, done | (1n << BigInt(i - first))) };
  }
}

/** What a to-do is after a call, and what the call is answered. */
function take(state: State, call: Operation["call"]): { readonly state: State; readonly answer: Answer } {
  if (call === "create") return { state: state === "none" ? "open" : state, answer: "ok" };
  if (state === "none" || state === "deleted") return { state, answer: "absent" };
  switch (call) {
    case "get":
      return { state, answer: state };
    case "finish":
      return { state: "done", answer: "ok" };
    case "reopen":
      return { state: "open", answer: "ok" };
    case "delete":
      return { state: "deleted", answer: "ok" };
  }
}

/** The same operations with as many as can be below `first`. */
function withDone(first: number, done: bigint): Pick<Search, "first" | "done"> {
  let from = first;
  let bits = done;
  while (bits & 1n) {
    bits >>= 1n;
    from++;
  }
  return { first: from, done: bits };
}
