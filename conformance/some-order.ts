/** Requests that are sent at once have the results of some order (linearizability). */

import { ownProperty } from "./json.ts";
import type { Exchange, Model } from "./model.ts";
import { type CapturedResponse, RuleViolation } from "./target-client.ts";

/**
 * Returns the model after an order of the exchanges that the model allows, in which the list is as shown afterwards.
 * Throws a `RuleViolation` when no order explains them.
 */
export function applyInSomeOrder(
  model: Model,
  exchanges: readonly Exchange[],
  list: CapturedResponse | undefined,
): Model {
  if (exchanges.length === 0) return model;
  const first = inFirstOrder(model, exchanges, list);
  if (first !== undefined) return first;
  let deepest: { readonly depth: number; readonly violation: RuleViolation } | undefined;
  const seen = new Set<string>();

  const search = (current: Model, rest: readonly Exchange[]): Model | undefined => {
    const candidates = rest.length === 0 ? [undefined] : nextCandidates(rest);
    const isForced = candidates.length === 1;
    const state = isForced ? "" : `${rest.map((each) => exchanges.indexOf(each))} ${current.fingerprint()}`;
    if (seen.has(state)) return undefined;
    if (!isForced) seen.add(state);
    for (const candidate of candidates) {
      const next = isForced ? current : current.clone();
      try {
        if (candidate !== undefined) next.apply(candidate);
        else if (list !== undefined) next.checkList(list);
      } catch (error) {
        if (!(error instanceof RuleViolation)) throw error;
        const depth = exchanges.length - rest.length;
        if (deepest === undefined || depth > deepest.depth) deepest = { depth, violation: error };
        continue;
      }
      if (candidate === undefined) return next;
      const found = search(
        next,
        rest.filter((each) => each !== candidate),
      );
      if (found !== undefined) return found;
    }
    return undefined;
  };

  const found = search(model, exchanges);
  if (found !== undefined) return found;
  throw explain(exchanges, deepest?.violation);
}

/** Tries one order, because it usually explains the results, and one copy of the model suffices for it. */
function inFirstOrder(
  model: Model,
  exchanges: readonly Exchange[],
  list: CapturedResponse | undefined,
): Model | undefined {
  const copy = model.clone();
  try {
    for (let rest = exchanges; rest.length > 0; ) {
      const next = nextCandidates(rest)[0];
      if (next !== undefined) copy.apply(next);
      rest = rest.filter((each) => each !== next);
    }
    if (list !== undefined) copy.checkList(list);
    return copy;
  } catch (error) {
    if (error instanceof RuleViolation) return undefined;
    throw error;
  }
}

/** Creates have one possible order, that of their ids, so only the next of them is a candidate. */
function nextCandidates(rest: readonly Exchange[]): readonly Exchange[] {
  const created = rest.filter(({ request, response }) => request.method === "POST" && response.ok);
  const [next] = created.toSorted((a, b) => (idOf(a) < idOf(b) ? -1 : 1));
  return rest.filter((each) => each === next || !created.includes(each));
}

function explain(exchanges: readonly Exchange[], deepest: RuleViolation | undefined): RuleViolation {
  const successful = (method: string) =>
    exchanges.filter(({ request, response }) => request.method === method && response.ok);
  const [created, deleted] = [successful("POST"), successful("DELETE")];
  const isSameId = new Set(created.map(idOf)).size < created.length;
  const isTwice = new Set(deleted.map(({ id }) => id)).size < deleted.length;
  const isSerial =
    exchanges.every(({ request }) => request.method === "POST") &&
    !isSameId &&
    deepest?.rule !== "list.complete";
  if (deepest !== undefined && (exchanges.length === 1 || isSerial || deepest.rule === "list.unlimited"))
    return deepest;
  const results = exchanges.map(({ response }) => `${response.request} → ${response.summary}`).join("; ");
  return new RuleViolation(
    `${exchanges.length} concurrent requests: expected the results of some order, got ${results}. In the order closest to them: ${deepest?.message}`,
    isTwice ? "delete.once" : isSameId ? "todo.id.unique" : "todos.concurrent",
  );
}

function idOf({ response }: Exchange): bigint {
  const id = ownProperty(response.json, "id");
  return typeof id === "bigint" ? id : 0n;
}
