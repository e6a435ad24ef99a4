/** Makes a failing sequence as short and simple as possible. */
import { ownProperty, parseJson } from "./json.ts";
import type { Request, Step } from "./step.ts";
import type { RuleViolation } from "./target-client.ts";

/** A short malformed path parameter. */
const MALFORMED = "abc";
const DONE = '{"done":true}';

/** A sequence whose last step violates a rule. */
export interface Failure {
  readonly steps: readonly Step[];
  readonly violation: RuleViolation;
}

/**
 * Returns the shortest failing sequence that it finds. `replay` runs a sequence on new to-dos, and returns its failure
 * if there is one. Returns undefined when the sequence does not fail again.
 */
export async function shrink(
  steps: readonly Step[],
  replay: (steps: readonly Step[]) => Promise<Failure | undefined>,
  hasTime: () => boolean,
): Promise<Failure | undefined> {
  let best: Failure | undefined;
  const fails = async (candidate: readonly Step[]): Promise<boolean> => {
    if (!hasTime()) return false;
    const failure = await replay(candidate);
    if (failure !== undefined) best = failure;
    return failure !== undefined;
  };
  for (const candidate of [...lastRequests(steps), related(steps), steps]) {
    if (await fails(candidate)) break;
  }
  const current = () => best?.steps ?? [];
  let simplified = true;
  while (simplified && best !== undefined && hasTime()) {
    await removeParts(current, fails);
    simplified = await simplifySteps(current, fails);
  }
  return best;
}

/** Removes ever smaller parts, the latest first, while the rest fails. Returns whether it removed something. */
async function removeParts<T>(
  current: () => readonly T[],
  fails: (rest: readonly T[]) => Promise<boolean>,
): Promise<boolean> {
  let removed = false;
  for (let size = Math.ceil(current().length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let start = current().length - size; start > -size; start -= size) {
      const rest = [...current().slice(0, Math.max(start, 0)), ...current().slice(start + size)];
      if (rest.length > 0 && rest.length < current().length) removed = (await fails(rest)) || removed;
    }
  }
  return removed;
}

/** Replaces each step by simpler ones. Returns whether one of them still fails. */
async function simplifySteps(
  current: () => readonly Step[],
  fails: (steps: readonly Step[]) => Promise<boolean>,
): Promise<boolean> {
  let simplified = false;
  for (let index = 0; index < current().length; index += 1) {
    const replace = (replacement: readonly Step[]) =>
      fails([...current().slice(0, index), ...replacement, ...current().slice(index + 1)]);
    const requests = () => requestsOf(current()[index]);
    const step = current()[index];
    if (step !== undefined && "many" in step) await reduceMany(step.many, (many) => replace([{ many }]));
    if (requests().length > 1) {
      const oneByOne = [...requests(), { method: "GET" } as const].map((each) => ({ requests: [each] }));
      if (await replace(oneByOne)) return true;
      simplified = (await removeParts(requests, (rest) => replace([{ requests: rest }]))) || simplified;
    }
    simplified =
      (await simplifyRequests(requests, (simpler) => replace([{ requests: simpler }]))) || simplified;
  }
  return simplified;
}

/** Replaces each request of a step by simpler ones. Returns whether one of them still fails. */
async function simplifyRequests(
  current: () => readonly Request[],
  fails: (requests: readonly Request[]) => Promise<boolean>,
): Promise<boolean> {
  let simplified = false;
  for (let index = 0; index < current().length; index += 1) {
    let isSimpler = true;
    while (isSimpler) {
      isSimpler = false;
      const request = current()[index];
      for (const simpler of request === undefined ? [] : simplerRequests(request)) {
        isSimpler = await fails(current().with(index, simpler));
        simplified ||= isSimpler;
        if (isSimpler) break;
      }
    }
  }
  return simplified;
}

/** Finds the smallest number that fails by bisection. */
async function reduceMany(many: number, fails: (many: number) => Promise<boolean>): Promise<void> {
  let [passing, failing] = [0, many];
  while (failing - passing > 1) {
    const middle = Math.floor((passing + failing) / 2);
    if (await fails(middle)) failing = middle;
    else passing = middle;
  }
}

/** Each request of the last step alone, after the request that created its to-do. */
function lastRequests(steps: readonly Step[]): Step[][] {
  return steps
    .slice(-1)
    .flatMap(requestsOf)
    .map((request) => {
      const creator = steps
        .flatMap(requestsOf)
        .find(({ creates }) => creates !== undefined && creates === request.id?.of);
      return [...(creator === undefined ? [] : [creator]), request].map((each) => ({ requests: [each] }));
    });
}

/** The last step, with the earlier steps that name its to-dos. */
function related(steps: readonly Step[]): readonly Step[] {
  const last = new Set(steps.slice(-1).flatMap(numbersOf));
  if (last.size === 0) return steps;
  return steps.filter(
    (step, index) => index === steps.length - 1 || numbersOf(step).some((of) => last.has(of)),
  );
}

function numbersOf(step: Step): number[] {
  return requestsOf(step).flatMap(({ id, creates, named }) =>
    [id?.of, creates, named].filter((of) => of !== undefined),
  );
}

function requestsOf(step: Step | undefined): readonly Request[] {
  return step === undefined || "many" in step ? [] : step.requests;
}

function simplerRequests(request: Request): Request[] {
  const { credentials, ...without } = request;
  const { method, id } = request;
  return [
    ...(method === "GET" || id === undefined ? [] : [{ method: "GET", id } as const]),
    ...(id === undefined || ["{}", MALFORMED].includes(id.text)
      ? []
      : [{ ...request, id: { ...id, text: MALFORMED } }]),
    ...(credentials === undefined ? [] : [without]),
    ...(method === "PATCH" && request.body !== DONE ? [{ ...request, body: DONE }] : []),
    ...simplerBodies(request).map((body) => ({ ...request, body })),
  ];
}

/** The same JSON without whitespace and escapes, and objects whose title is shorter. */
function simplerBodies({ body = "", creates = 0 }: Request): string[] {
  const title = ownProperty(parseJson(body), "title");
  if (typeof title !== "string") return [];
  const characters = [...title];
  const { length } = characters;
  const parts = [2, 4, 8, 16, length].map((count) => Math.ceil(length / count));
  const withoutParts = parts.flatMap((size) => [characters.slice(size), characters.slice(0, -size)]);
  const isShort = length <= 24;
  const removed = isShort ? characters.map((_, index) => characters.toSpliced(index, 1)) : [];
  const plain = isShort
    ? characters.map((_, index) => characters.with(index, "x"))
    : [characters.map(() => "x")];
  // Different to-dos get different letters, because equal titles could be another fault.
  return [characters, ["abcdefgh".charAt(creates % 8)], ...withoutParts, ...removed, ...plain]
    .filter((each) => each.length > 0)
    .map((each) => JSON.stringify({ title: each.join("") }))
    .filter((each) => complexity(each) < complexity(body));
}

/** The length, and among texts of the same length the number of characters that are not plain letters. */
function complexity(text: string): number {
  return text.length * 10_000 + text.replace(/[a-z]/g, "").length;
}
