export interface Operation {
  readonly call: "create" | "get" | "finish" | "reopen" | "delete";
  /** `undefined` without a response: the operation may have taken effect, may do so later, or never. */
  readonly answer: Answer | undefined;
  /** When the request was sent and when the response arrived, on one clock. */
  readonly start: number;
  readonly end: number;
}

/** The state that `get` finds, or whether another operation succeeded. */
export type Answer = "absent" | "open" | "done" | "ok";

type State = "none" | "open" | "done" | "deleted";

/** Returns whether each operation on a to-do, absent at first, can have taken effect at one moment between its start and its end. */
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

/** A partial order of the operations. */
interface Search {
  readonly state: State;
  /** All answered operations before this index are part of it. */
  readonly first: number;
  /** The answered operations from `first` on that are part of it, one bit each. */
  readonly done: bigint;
  readonly used: readonly number[];
}

/** Yields each operation that may come next: it started before the end of every remaining answered one. */
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
  // Of equal unanswered operations, the first is enough, and only if it changes the state.
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

/** Raises `first` as far as the operations after it are done. */
function withDone(first: number, done: bigint): Pick<Search, "first" | "done"> {
  let from = first;
  let bits = done;
  while (bits & 1n) {
    bits >>= 1n;
    from++;
  }
  return { first: from, done: bits };
}
