/** Requests that are sent at once have the results of some order (linearizability). */
import { ownProperty } from "./json.ts";
import { type Exchange, type Model, parseId } from "./model.ts";
import { type CapturedResponse, RuleViolation } from "./target-client.ts";

/**
 * Returns the model after an order of the exchanges that the model allows, in which the list is as shown afterwards.
 * Throws a `RuleViolation` when no order explains them. The given model may change.
 */
export function applyInSomeOrder(
  model: Model,
  exchanges: readonly Exchange[],
  list: CapturedResponse | undefined,
): Model {
  const isIndependent = areIndependent(exchanges);
  const next = isIndependent ? model : model.clone();
  try {
    // This order usually explains the results.
    for (let rest = exchanges; rest.length > 0; ) {
      const first = nextCandidates(rest)[0];
      if (first !== undefined) next.apply(first);
      rest = rest.filter((each) => each !== first);
    }
    if (list !== undefined) next.checkList(list);
    return next;
  } catch (error) {
    if (!(error instanceof RuleViolation)) throw error;
    if (isIndependent) throw explain(exchanges, error);
    return search(model, exchanges, list);
  }
}

/** Returns whether each order has the same results, because no two exchanges concern the same to-do. */
function areIndependent(exchanges: readonly Exchange[]): boolean {
  if (exchanges.length === 1) return true;
  const readsList = exchanges.some(({ request, id }) => request.method === "GET" && id === undefined);
  const ids = exchanges.flatMap((exchange) => {
    const id = exchange.id === undefined ? createdId(exchange) : parseId(exchange.id);
    return id === undefined ? [] : [id];
  });
  return !readsList && new Set(ids).size === ids.length;
}

function search(model: Model, exchanges: readonly Exchange[], list: CapturedResponse | undefined): Model {
  let deepest: { readonly depth: number; readonly violation: RuleViolation } | undefined;
  const seen = new Set<string>();

  const searchFrom = (current: Model, rest: readonly Exchange[]): Model | undefined => {
    const state = `${rest.map((each) => exchanges.indexOf(each))} ${current.fingerprint()}`;
    if (seen.has(state)) return undefined;
    seen.add(state);
    for (const candidate of rest.length === 0 ? [undefined] : nextCandidates(rest)) {
      const next = current.clone();
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
      const found = searchFrom(
        next,
        rest.filter((each) => each !== candidate),
      );
      // If an exchange that cannot change anything is possible now, no other order needs to be tried.
      if (found !== undefined || candidate.request.method === "GET" || !candidate.response.ok) return found;
    }
    return undefined;
  };

  const found = searchFrom(model, exchanges);
  if (found !== undefined) return found;
  throw explain(exchanges, deepest?.violation);
}

/** Creates have one possible order, that of their ids, so only the next of them is a candidate. */
function nextCandidates(rest: readonly Exchange[]): readonly Exchange[] {
  const created = rest.filter((each) => createdId(each) !== undefined);
  const [next] = created.toSorted((a, b) => ((createdId(a) ?? 0n) < (createdId(b) ?? 0n) ? -1 : 1));
  const mayBeNext = ({ began }: Exchange) => rest.every(({ ended }) => ended >= began);
  return rest.filter((each) => each === next || (!created.includes(each) && mayBeNext(each)));
}

function explain(exchanges: readonly Exchange[], deepest: RuleViolation | undefined): RuleViolation {
  const deleted = exchanges.filter(({ request, response }) => request.method === "DELETE" && response.ok);
  const created = exchanges.flatMap((each) => createdId(each) ?? []);
  const isSameId = new Set(created).size < created.length;
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

/** Returns the id that a POST created, or 0 when its response shows none. */
function createdId({ request, response }: Exchange): bigint | undefined {
  if (request.method !== "POST" || !response.ok) return undefined;
  const id = ownProperty(response.json, "id");
  return typeof id === "bigint" ? id : 0n;
}
