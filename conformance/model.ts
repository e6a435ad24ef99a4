/** A model of the to-do routes: which responses the specification allows, and which to-dos exist after them. */
import { type Json, keysOf, ownProperty, parseJson } from "./json.ts";
import type { RuleId } from "./rules.ts";
import type { Request } from "./step.ts";
import type { CapturedResponse } from "./target-client.ts";
import { isStoredFor, judgeTitle, trim } from "./title.ts";
import { expectMessages } from "./validation-errors.ts";

/** A request with the text of its path parameter, and the response. */
export interface Exchange {
  readonly request: Request;
  readonly id?: string;
  readonly response: CapturedResponse;
  /** When the request was sent and its response complete. An exchange that ended before another began has its place before it. */
  readonly began: number;
  readonly ended: number;
}

interface Todo {
  readonly title: string;
  readonly done: boolean;
}

/** The latest request that could change something, to say which rule explains a difference. */
interface LastWrite {
  readonly method: Request["method"];
  readonly id: bigint | undefined;
  /** Whether the body has a title. */
  readonly hasTitle: boolean;
}

/** The start of titles that no other client has. */
export const MARKER = "kit-";
const ID_LIMIT = 2n ** 64n;
/** A server may limit larger bodies, because the specification does not show a limit. */
const MAX_REQUIRED_BODY_BYTES = 1024;
/** Other clients of a target in use do not get ids this far above the latest one. */
const FAR = 1_000_000n;
const OPERATION = { GET: "get", PATCH: "update", DELETE: "delete" } as const;

export class Model {
  readonly todos = new Map<bigint, Todo>();
  readonly #used = new Set<bigint>();
  readonly #rejectedTitles = new Set<string>();
  /** True when no other client writes, so that ids and the list are known exactly. */
  readonly isExclusive: boolean;
  /** The greatest id so far. Undefined: not known yet. */
  #lastId: bigint | undefined;
  #lastWrite: LastWrite | undefined;
  /** Whether a request after the latest POST stored nothing. */
  #usedNoId = false;

  constructor(isExclusive: boolean, lastId?: bigint) {
    this.isExclusive = isExclusive;
    this.#lastId = lastId;
  }

  clone(): Model {
    const copy = new Model(this.isExclusive, this.#lastId);
    for (const [id, todo] of this.todos) copy.todos.set(id, todo);
    for (const id of this.#used) copy.#used.add(id);
    for (const title of this.#rejectedTitles) copy.#rejectedTitles.add(title);
    copy.#lastWrite = this.#lastWrite;
    copy.#usedNoId = this.#usedNoId;
    return copy;
  }

  /** Returns a text that differs for models with different to-dos. */
  fingerprint(): string {
    return `${[...this.todos].map(([id, { done }]) => `${id}${done}`)}`;
  }

  /** Takes over the to-dos of a list whose origin is not known. */
  adopt(todos: readonly Json[]): void {
    for (const todo of todos) {
      const [id, title] = [ownProperty(todo, "id"), ownProperty(todo, "title")];
      if (typeof id !== "bigint" || typeof title !== "string") continue;
      this.todos.set(id, { title, done: ownProperty(todo, "done") === true });
      this.#used.add(id);
    }
  }

  /** Returns whether no client can have a to-do with this id, as far as the model knows. */
  isFarAbove(id: bigint): boolean {
    return this.#lastId !== undefined && id > this.#lastId + FAR;
  }

  isOurs(id: bigint): boolean {
    return this.#used.has(id);
  }

  /** Applies one exchange. Throws a `RuleViolation` when the specification does not allow the response. */
  apply({ request, id: text, response }: Exchange): void {
    const { method, credentials } = request;
    const isOpen = ![401, 403, 407].includes(response.status);
    const rule = credentials === undefined ? "todos.open" : "todos.no-authentication";
    response.expect(isOpen, "no request for credentials", rule);
    if (!response.ok && response.text !== "") expectJson(response, "json.errors");
    if (text === undefined) {
      if (method === "POST") this.#create(request, response);
      else this.checkList(response);
      return;
    }
    const id = parseId(text);
    if (id === undefined) {
      expectMalformed(request, text, response);
      return;
    }
    // A server may reject leading zeros.
    if (/^0\d/.test(text) && isClientError(response)) return;
    const todo = this.todos.get(id);
    if (todo === undefined) this.#absent(request, id, response);
    else if (method === "GET") this.#get(id, todo, response);
    else if (method === "PATCH") this.#update(id, todo, request, response);
    else this.#delete(id, todo, response);
    const hasTitle = ownProperty(parseJson(request.body ?? ""), "title") !== undefined;
    if (method !== "GET") this.#lastWrite = { method, id, hasTitle };
    this.#usedNoId = true;
  }

  /** Expects the list to show the to-dos of the model: exactly these, or on a target in use at least these. */
  checkList(response: CapturedResponse): void {
    const isEmpty = this.isExclusive && this.todos.size === 0;
    response.expect(
      response.status === 200,
      "200",
      isEmpty && response.status === 404 ? "list.empty" : "list.200",
    );
    expectJson(response, "json.success");
    const list = response.json;
    if (!Array.isArray(list))
      throw response.violation("a JSON array", isEmpty && list === null ? "list.empty" : "list.array");
    const listed = new Map<bigint, Todo>();
    for (const element of list) {
      const { id, ...todo } = readTodo(response, element, "todo.keys");
      response.expect(!listed.has(id), `the to-do ${id} once`, "list.complete");
      this.#expectKnown(id, todo.title, response);
      listed.set(id, todo);
    }
    let previous = -1n;
    for (const id of listed.keys()) {
      response.expect(id > previous, `ascending ids, not ${id} after ${previous}`, "list.order");
      previous = id;
    }
    for (const [id, { title, done }] of this.todos) {
      const found = listed.get(id);
      if (found === undefined)
        throw response.violation(`the to-do ${id}`, this.#explainLost(id, "list.complete"));
      response.expect(
        found.title === title,
        `the title ${quote(title)} of the to-do ${id}`,
        this.#explainTitle(id),
      );
      const rule = this.#explainDone(id, "list.complete");
      response.expect(found.done === done, `done=${done} of the to-do ${id}`, rule);
    }
    this.#usedNoId = true;
  }

  #expectKnown(id: bigint, title: string, response: CapturedResponse): void {
    const isKnown = this.todos.has(id);
    const mayBeOthers = !this.isExclusive && !this.#used.has(id) && !this.#rejectedTitles.has(title);
    response.expect(isKnown || mayBeOthers, `no to-do ${id}`, this.#explainExtra(id));
  }

  #create(request: Request, response: CapturedResponse): void {
    const json = parseJson(request.body ?? "");
    const title = ownProperty(json, "title");
    const verdict = typeof title === "string" ? judgeTitle(title) : undefined;
    if (typeof title === "string" && verdict !== undefined && response.ok) {
      response.expect(!verdict.blank && !verdict.long, "422", statusRule(title, verdict));
      this.#store(json, title, response);
      return;
    }
    this.#lastWrite = { method: "POST", id: undefined, hasTitle: typeof title === "string" };
    this.#usedNoId = true;
    if (typeof title !== "string" || verdict === undefined) {
      const keys = keysOf(json);
      const rule = keys === undefined ? "body.create.4xx" : "newtodo.title.required";
      const ofBody = keys === undefined && response.ok ? "create.validates-first" : rule;
      expect4xx(response, keys?.includes("title") === true ? "newtodo.title.string" : ofBody);
      return;
    }
    if (title.startsWith(MARKER)) this.#rejectedTitles.add(title);
    if (response.status === 413 && Buffer.byteLength(request.body ?? "") > MAX_REQUIRED_BODY_BYTES) return;
    const mayReject = keysOf(json)?.some((key) => key !== "title") === true;
    const isValid = verdict.blank === false && verdict.long === false;
    const isInvalid = verdict.blank === true || verdict.long === true;
    response.expect(
      isClientError(response),
      isValid ? "201" : "422",
      isValid ? "create.201" : statusRule(title, verdict),
    );
    if (mayReject) return;
    if (isValid) throw response.violation("201", this.#explainRejection(title));
    response.expect(response.status === 422 || !isInvalid, "422", statusRule(title, verdict));
    if (isInvalid) expectMessages(response, verdict);
  }

  #store(json: Json | undefined, title: string, response: CapturedResponse): void {
    response.expect(response.status === 201, "201", "create.201");
    expectJson(response, "json.success");
    const todo = readTodo(response, response.json, "create.answer");
    this.#expectNextId(todo.id, title, ownProperty(json, "id"), response);
    const hasDone = ownProperty(json, "done") !== undefined;
    response.expect(!todo.done, "done=false", hasDone ? "todo.done.assigned" : "create.done");
    response.expect(isStoredFor(todo.title, title), `the title ${quote(title)}`, "create.title");
    this.todos.set(todo.id, { title: todo.title, done: false });
    this.#used.add(todo.id);
    this.#lastId = todo.id;
    this.#lastWrite = { method: "POST", id: todo.id, hasTitle: true };
    this.#usedNoId = false;
  }

  #expectNextId(id: bigint, title: string, requested: Json | undefined, response: CapturedResponse): void {
    const existing = this.todos.get(id);
    const reused = existing === undefined ? "todo.id.not-reused" : "todo.id.unique";
    const rule = existing?.title === title ? "create.same-title" : reused;
    response.expect(
      !this.#used.has(id),
      "an id that no to-do had",
      requested === id ? "todo.id.assigned" : rule,
    );
    const next = (this.#lastId ?? 0n) + 1n;
    if (!this.isExclusive)
      response.expect(requested !== id || !this.isFarAbove(id), "an assigned id", "todo.id.assigned");
    if (this.isExclusive) response.expect(id !== 0n, "1 as the first id", "todo.id.first");
    if (!this.isExclusive || this.#lastId === undefined) {
      response.expect(id >= next, `an id of at least ${next}`, "todo.id.increasing");
      return;
    }
    const skipped = this.#usedNoId ? "counter.only-stored" : "todo.id.step";
    const wrong = this.#lastId === 0n ? "todo.id.first" : id < next ? "todo.id.increasing" : skipped;
    response.expect(id === next, `the id ${next}`, requested === id ? "todo.id.assigned" : wrong);
  }

  #get(id: bigint, todo: Todo, response: CapturedResponse): void {
    response.expect(response.status !== 404, "200", this.#explainLost(id, "get.200"));
    response.expect(response.status === 200, "200", "get.200");
    this.#expectTodo(id, todo, response, "get.answer");
  }

  #expectTodo(id: bigint, { title, done }: Todo, response: CapturedResponse, rule: RuleId): void {
    expectJson(response, "json.success");
    const shown = readTodo(response, response.json, rule);
    response.expect(shown.id === id, `the to-do ${id}`, rule);
    response.expect(shown.title === title, `the title ${quote(title)}`, this.#explainTitle(id));
    response.expect(shown.done === done, `done=${done}`, this.#explainDone(id, rule));
  }

  #update(id: bigint, todo: Todo, { body }: Request, response: CapturedResponse): void {
    const json = parseJson(body ?? "");
    const done = ownProperty(json, "done");
    const keys = keysOf(json);
    if (typeof done !== "boolean") {
      const missing = keys === undefined ? "body.update.4xx" : "patch.done.required";
      expect4xx(response, keys?.includes("done") === true ? "patch.done.boolean" : missing);
      return;
    }
    // The server may reject or ignore other keys. It must not use them.
    const hasOtherKeys = keys !== undefined && keys.length > 1;
    if (hasOtherKeys && isClientError(response)) return;
    response.expect(response.status !== 404, "200", this.#explainLost(id, "update.200"));
    response.expect(response.status === 200, "200", "update.200");
    expectJson(response, "json.success");
    const shown = readTodo(response, response.json, "update.answer");
    const other = hasOtherKeys ? "patch.only-done" : undefined;
    response.expect(shown.id === id, `the to-do ${id}`, other ?? "update.answer");
    response.expect(shown.title === todo.title, `the title ${quote(todo.title)}`, other ?? "title.same");
    response.expect(shown.done === done, `done=${done}`, done ? "update.to-true" : "update.to-false");
    this.todos.set(id, { ...todo, done });
  }

  #delete(id: bigint, { done }: Todo, response: CapturedResponse): void {
    response.expect(response.status !== 404, "204", this.#explainLost(id, "delete.204"));
    response.expect(response.ok || !done, "204", "delete.either-state");
    response.expect(response.status === 204, "204", "delete.204");
    this.todos.delete(id);
  }

  #absent({ method, body }: Request, id: bigint, response: CapturedResponse): void {
    if (method === "POST") return;
    // Another client may own an id that this run neither got nor found to be far away.
    if (!this.isExclusive && id !== 0n && !this.#used.has(id) && !this.isFarAbove(id)) return;
    if (method === "GET") response.expect(!response.ok, "404", this.#explainExtra(id, "id.range"));
    const isRange = response.status === 400 && id >= 2n ** 31n;
    const isValid = method !== "PATCH" || typeof ownProperty(parseJson(body ?? ""), "done") === "boolean";
    if (isValid)
      response.expect(
        response.status === 404,
        "404",
        isRange ? "id.range" : `${OPERATION[method]}.absent.404`,
      );
    else expect4xx(response, "update.absent.404");
  }

  /** The rule that explains why a to-do is gone. */
  #explainLost(id: bigint, rule: RuleId): RuleId {
    const last = this.#lastWrite;
    if (this.todos.size > 100 && rule === "list.complete") return "list.unlimited";
    if (last === undefined || last.id === undefined) return rule;
    if (last.id === id)
      return last.method === "POST"
        ? "create.stored"
        : last.method === "PATCH" && rule === "get.200"
          ? "update.stored"
          : rule;
    return last.method === "DELETE" ? "delete.only-one" : last.method === "PATCH" ? "update.only-one" : rule;
  }

  /** The rule that explains a wrong value of done. */
  #explainDone(id: bigint, rule: RuleId): RuleId {
    const last = this.#lastWrite;
    if (last?.method === "PATCH")
      return last.id !== id ? "update.only-one" : rule === "get.answer" ? "update.stored" : rule;
    return last?.method === "POST" && last.id === id && rule !== "list.complete" ? "create.done" : rule;
  }

  /** The rule that explains a changed title. */
  #explainTitle(id: bigint): RuleId {
    const last = this.#lastWrite;
    return last?.method === "PATCH" && last.id === id && last.hasTitle ? "patch.only-done" : "title.same";
  }

  /** The rule that explains a to-do that should not exist. */
  #explainExtra(id: bigint, rule: RuleId = "list.complete"): RuleId {
    const last = this.#lastWrite;
    if (last?.method === "POST" && last.id === undefined)
      return last.hasTitle ? "create.invalid.not-stored" : "create.validates-first";
    const isUsed = this.#used.has(id);
    if (last?.id === id) return isUsed && last.method === "DELETE" ? "delete.removes" : "absent.unchanged";
    return isUsed ? "delete.removes" : rule;
  }

  /** The rule that explains why a valid title was rejected. */
  #explainRejection(title: string): RuleId {
    const length = [...title].length;
    if (Buffer.byteLength(title) > 120) return "title.characters";
    if (length > 100) return "title.120";
    if (trim(title) !== title) return "title.padded";
    return [...this.todos.values()].some((todo) => todo.title === title) ? "create.same-title" : "create.201";
  }
}

/** Returns the id in a path, or undefined when it is not an unsigned 64-bit decimal integer. */
export function parseId(text: string): bigint | undefined {
  const id = /^[0-9]+$/.test(text) ? BigInt(text) : ID_LIMIT;
  return id < ID_LIMIT ? id : undefined;
}

function expectMalformed({ method, body }: Request, text: string, response: CapturedResponse): void {
  if (method === "POST") return;
  const json = parseJson(body ?? "");
  const hasDone = method !== "PATCH" || typeof ownProperty(json, "done") === "boolean";
  const rule = hasDone ? (`${OPERATION[method]}.malformed.400` as const) : "update.malformed.any-body";
  // A server may parse each body before it looks at the path.
  if (method === "PATCH" && json === undefined) expect4xx(response, "update.malformed.400");
  else response.expect(response.status === 400, "400", /^\d+$/.test(text) ? "id.out-of-range" : rule);
}

function statusRule(title: string, { blank }: { readonly blank: boolean | undefined }): RuleId {
  if (title === "") return "title.empty.422";
  return blank === false ? "title.long.422" : "title.blank.422";
}

/** Expects a client error, for a rejection whose exact status the specification does not show. */
function expect4xx(response: CapturedResponse, rule: RuleId): void {
  response.expect(isClientError(response), "a 4xx status", rule);
}

function isClientError({ status }: CapturedResponse): boolean {
  return status >= 400 && status < 500;
}

function expectJson(response: CapturedResponse, rule: RuleId): void {
  const isJson = /^application\/([^\s;]+\+)?json\s*(;|$)/i.test(response.contentType);
  response.expect(isJson, "a JSON content type", rule);
  response.expect(response.json !== undefined, "JSON", rule);
}

/** Reads a Todo. `answer` is the rule that something else than a Todo violates. */
function readTodo(
  response: CapturedResponse,
  json: Json | undefined,
  answer: RuleId,
): Todo & { readonly id: bigint } {
  const keys = keysOf(json);
  const isTodo = keys !== undefined && ["id", "title", "done"].every((key) => keys.includes(key));
  response.expect(isTodo, "a Todo", answer);
  response.expect(keys?.length === 3, "exactly the keys id, title and done", "todo.keys");
  const [id, title, done] = ["id", "title", "done"].map((key) => ownProperty(json, key));
  if (typeof id !== "bigint" || id < 0n || id >= ID_LIMIT)
    throw response.violation("an unsigned 64-bit integer as id", "todo.id.type");
  if (typeof title !== "string") throw response.violation("a string as title", "todo.title.type");
  if (typeof done !== "boolean") throw response.violation("a boolean as done", "todo.done.type");
  return { id, title, done };
}

function quote(title: string): string {
  return JSON.stringify(title.length <= 60 ? title : `${title.slice(0, 60)}…`);
}
