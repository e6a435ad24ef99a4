/** Executes the steps of one sequence on the target and the model side by side. */
import { ownProperty } from "./json.ts";
import { type Exchange, type Model, parseId } from "./model.ts";
import { applyInSomeOrder } from "./some-order.ts";
import { type Credentials, type Request, resolveId, type Step } from "./step.ts";
import type { Target, TargetClient } from "./target-client.ts";

/** The step that reads the list. */
export const LIST: Step = { requests: [{ method: "GET" }] };
/** The number of a to-do that an earlier sequence left. */
export const ELDER = -1;
/** The first number of the to-dos that a step creates in bulk. */
const BULK = 1_000_000;
/** How many requests that interfere are sent at once, at most. The time to check their orders grows with it. */
export const MAX_AT_ONCE = 8;
/** How many requests that do not interfere are sent at once. */
export const GROUP = 32;

export class Walk {
  /** The steps so far, the last one included. */
  readonly executed: Step[] = [];
  readonly #client: TargetClient;
  readonly #ids = new Map<number, bigint>();
  #model: Model;

  constructor(client: TargetClient, model: Model, elder?: bigint) {
    this.#client = client;
    this.#model = model;
    if (elder !== undefined) this.#ids.set(ELDER, elder);
  }

  get model(): Model {
    return this.#model;
  }

  /** The id of a to-do of this sequence that still exists, if possible one that is done. */
  get survivor(): bigint | undefined {
    const ids = [...this.#ids.values()].filter((id) => this.#model.todos.has(id));
    return ids.find((id) => this.#model.todos.get(id)?.done) ?? ids[0];
  }

  /** Executes one step, or as much of a bulk step as the time allows. Throws a `RuleViolation`. */
  async step(step: Step, hasTime: () => boolean = () => true): Promise<void> {
    this.executed.push(step);
    if ("requests" in step) return this.#send(step.requests);
    for (let created = 0; created < step.many; created += GROUP) {
      if (!hasTime()) {
        this.executed.splice(-1, 1, { many: created });
        break;
      }
      const count = Math.min(GROUP, step.many - created);
      await this.#send(
        Array.from({ length: count }, (_, index) => bulkRequest(created + index)),
        false,
      );
    }
  }

  /** Deletes the to-dos of this sequence as further steps, except one, and reads the list. */
  async finish(kept?: bigint): Promise<void> {
    const numbers = [...this.#ids].flatMap(([of, id]) =>
      id !== kept && this.#model.todos.has(id) ? [of] : [],
    );
    while (numbers.length > 0) {
      const requests = numbers
        .splice(0, GROUP)
        .map((of): Request => ({ method: "DELETE", id: { of, text: "{}" } }));
      this.executed.push({ requests });
      await this.#send(requests, numbers.length === 0);
    }
    await this.step(LIST);
  }

  async #send(requests: readonly Request[], readsList = requests.length > 1): Promise<void> {
    // Some races show only if a request starts while another one runs.
    const delayMs = requests.length <= MAX_AT_ONCE ? this.#client.sent % 4 : 0;
    const sent = await Promise.all(
      requests.map(async (request, index) => {
        if (index % 2 === 1 && delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
        return this.#sendOne(request);
      }),
    );
    const exchanges = sent.filter((exchange) => exchange !== undefined);
    const list = readsList && exchanges.length > 1 ? await this.#client.send("GET", "/api/todos") : undefined;
    this.#model = applyInSomeOrder(this.#model, exchanges, list);
  }

  /** Sends a request. Returns nothing when its to-do was not created, or when it could change a to-do of another client. */
  async #sendOne(request: Request): Promise<Exchange | undefined> {
    const id = request.id === undefined ? undefined : resolveId(request.id, this.#ids);
    if (request.id !== undefined && id === undefined) return undefined;
    if (id !== undefined && request.method !== "GET" && !(await this.#mayWrite(id))) return undefined;
    const { method, credentials, named } = request;
    const body = request.body?.replace('"<id>"', String(this.#ids.get(named ?? 0) ?? 1));
    const began = performance.now();
    const response = await this.#client.send(method, pathOf(id), {
      ...(body === undefined ? {} : { body }),
      ...(credentials === undefined
        ? {}
        : {
            headers: { authorization: authorizationOf(credentials, this.#client.target) },
            note: `with credentials (${credentials})`,
          }),
    });
    const ended = performance.now();
    const created = request.creates === undefined ? undefined : ownProperty(response.json, "id");
    if (response.ok && request.creates !== undefined && typeof created === "bigint")
      this.#ids.set(request.creates, created);
    const sent = body === undefined ? request : { ...request, body };
    return { request: sent, response, began, ended, ...(id === undefined ? {} : { id }) };
  }

  async #mayWrite(text: string): Promise<boolean> {
    const id = parseId(text);
    if (id === undefined || this.#model.isExclusive || this.#model.isOurs(id)) return true;
    if (!this.#model.isFarAbove(id)) return false;
    return (await this.#client.send("GET", pathOf(text))).status === 404;
  }
}

export function pathOf(id: string | undefined): string {
  return id === undefined ? "/api/todos" : `/api/todos/${id}`;
}

export function bulkRequest(index: number): Request {
  return {
    method: "POST",
    creates: BULK + index,
    body: JSON.stringify({ title: `to-do ${index + 1} of many`.padEnd(100, ".") }),
  };
}

function authorizationOf(credentials: Credentials, { token, user }: Target): string {
  const values: Readonly<Record<Credentials, string>> = {
    token: `Bearer ${token}`,
    user: basic(user.name, user.password),
    "unknown token": "Bearer conformance-unknown-token",
    "unknown user": basic("conformance-nobody", "conformance-wrong-password"),
    malformed: "Nonsense",
  };
  return values[credentials];
}

/** Returns the value of an Authorization header with Basic credentials in UTF-8 (RFC 7617). */
export function basic(name: string, password: string): string {
  return `Basic ${Buffer.from(`${name}:${password}`).toString("base64")}`;
}
