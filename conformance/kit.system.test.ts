/** Tests of the kit: it accepts the reference server and rejects each faulty server by the rules that the fault violates. */
import { describe, expect, test } from "bun:test";
import { NOTATIONS } from "./bodies.ts";
import { Generator } from "./generator.ts";
import { ownProperty, parseJson } from "./json.ts";
import { Model } from "./model.ts";
import { runModel } from "./model-run.ts";
import {
  clientName,
  type Handler,
  handleRequest,
  json,
  type ParsedRequest,
  problem,
  type State,
  serialize,
  storeTodo,
  type Todo,
  token,
  user,
  withServer,
} from "./reference-server.ts";
import { type RuleId, reliesOn, rules } from "./rules.ts";
import { checkServer, createClient, type Options, type Report, runCases } from "./runner.ts";
import { applyInSomeOrder } from "./some-order.ts";
import { CapturedResponse, Stopped } from "./target-client.ts";

// Only the required sequences, so that a run depends on the seed alone.
const ALL_OPTIONS = { token, user, clientName, fresh: true, seed: 1, seconds: 0 };

function check(
  handler: Handler,
  options: Omit<Options, "baseUrl"> = ALL_OPTIONS,
  state = emptyState(),
): Promise<Report> {
  return withServer(handler, state, (baseUrl) => checkServer({ baseUrl, ...options }));
}

const emptyState = (): State => ({ todos: new Map(), lastId: 0n });

const stateOfOthers = (): State => ({
  todos: new Map([[7n, { id: 7n, title: "existing", done: true }]]),
  lastId: 9n,
});

const idsWithStatus = ({ results }: Pick<Report, "results">, status: string): string[] =>
  results.filter((result) => result.status === status).map(({ rule }) => rule.id);

// Each helper returns the reference server with one change.

type Route = RegExp;
const LIST = /^GET \/api\/todos$/;
const CREATE = /^POST \/api\/todos$/;
const READ = /^GET \/api\/todos\/./;
const UPDATE = /^PATCH \/api\/todos\/./;
const DELETE = /^DELETE \/api\/todos\/./;
const TODO = /^\w+ \/api\/todos\/./;
const TODOS = /^\w+ \/api\/todos/;
const WHOAMI = /^\w+ \/api\/whoami$/;
const ADMIN = /^\w+ \/admin\/$/;

const matches = (route: Route, { method, path }: ParsedRequest): boolean => route.test(`${method} ${path}`);

const withRequest = (
  route: Route,
  change: (request: ParsedRequest, state: State) => Partial<ParsedRequest> | Promise<Partial<ParsedRequest>>,
): Handler =>
  override(route, async (request, state) =>
    handleRequest({ ...request, ...(await change(request, state)) }, state),
  );

const withBody = (change: (body: string) => string): Handler =>
  withRequest(TODOS, ({ body }) => ({ body: change(body) }));

const inBody = (pattern: RegExp | string, replacement: string): Handler =>
  withBody((body) => body.replace(pattern, replacement));

const inPath = (pattern: RegExp | string, change: (part: string) => string): Handler =>
  withRequest(/./, ({ path }) => ({ path: path.replace(pattern, change) }));

/** Handles requests of a route by `handle`, and by the reference server when that returns undefined. */
function override(
  route: Route,
  handle: (request: ParsedRequest, state: State) => Response | undefined | Promise<Response | undefined>,
): Handler {
  return async (request, state) => {
    const response = matches(route, request) ? await handle(request, state) : undefined;
    return response ?? handleRequest(request, state);
  };
}

const before = (route: Route, change: (state: State, request: ParsedRequest) => void | Promise<void>) =>
  override(route, async (request, state) => {
    await change(state, request);
    return undefined;
  });

const reject = (
  route: Route,
  status: number,
  when: (request: ParsedRequest, state: State) => boolean = () => true,
): Handler => override(route, (request, state) => (when(request, state) ? problem(status) : undefined));

const isMalformed = ({ body }: ParsedRequest): boolean => body !== "" && parseJson(body) === undefined;

const withResponse = (
  route: Route,
  change: (response: Response, request: ParsedRequest, state: State) => Response | Promise<Response>,
): Handler => override(route, (request, state) => change(handleRequest(request, state), request, state));

const withAnswer = (
  route: Route,
  status: number,
  answer: (response: Response, request: ParsedRequest, state: State) => Response | Promise<Response>,
): Handler =>
  withResponse(route, (response, request, state) =>
    response.status === status ? answer(response, request, state) : response,
  );

const withHeader = (route: Route, status: number, name: string, value: string): Handler =>
  withAnswer(route, status, (response) => {
    response.headers.set(name, value);
    return response;
  });

const overrideTitle = (
  when: (title: string) => boolean,
  handle: (title: string, state: State) => Response,
): Handler =>
  override(CREATE, ({ body }, state) => {
    const title = parseTitle(body);
    return title !== undefined && when(title) ? handle(title, state) : undefined;
  });

const isValid = (title: string): boolean => title.trim() !== "" && title.length <= 120;

const rejectTitle = (when: (title: string) => boolean): Handler => overrideTitle(when, () => problem(422));

const isDone = ({ path }: ParsedRequest, state: State): boolean => findTodo(path, state)?.done === true;
const isEmptied = (_: ParsedRequest, { todos, lastId }: State): boolean => todos.size === 0 && lastId > 0n;

/** Returns the id in a path, or 0, which no to-do has. */
const parseId = (path: string): bigint => BigInt(/^\/api\/todos\/(\d+)$/.exec(path)?.[1] ?? 0);

const findTodo = (path: string, { todos }: State): Todo | undefined => todos.get(parseId(path));

function parseTitle(body: string): string | undefined {
  const title = ownProperty(parseJson(body), "title");
  return typeof title === "string" ? title : undefined;
}

const withList = (change: (elements: string[]) => string[]): Handler =>
  override(LIST, (_request, { todos }) =>
    json(200, `[${change([...todos.values()].map(serialize)).join()}]`),
  );

/** Changes the texts of the responses to requests of a route, except empty ones. */
const withText = (
  route: Route,
  change: (text: string, request: ParsedRequest, state: State) => string,
): Handler =>
  withResponse(route, async (response, request, state) => {
    const text = await response.text();
    return new Response(text === "" ? null : change(text, request, state), response);
  });

const inText = (route: Route, pattern: RegExp | string, replacement: string): Handler =>
  withText(route, (text) => text.replace(pattern, replacement));

const after = (
  route: Route,
  status: number,
  change: (state: State, request: ParsedRequest) => void | Promise<void>,
): Handler =>
  withAnswer(route, status, async (response, request, state) => {
    await change(state, request);
    return response;
  });

function changeTodo({ todos }: State, id: bigint, change: (todo: Todo) => Partial<Todo>): void {
  const todo = todos.get(id);
  if (todo !== undefined) todos.set(id, { ...todo, ...change(todo) });
}

/** Caches the responses to GET with this status until a request with one of these methods. */
function withCache(route: Route, methods: readonly string[], status = 200): Handler {
  const cache = new Map<string, string>();
  return override(TODOS, async (request, state) => {
    if (methods.includes(request.method)) cache.clear();
    if (!matches(route, request)) return undefined;
    const response = handleRequest(request, state);
    const text = cache.get(request.path) ?? (await response.text());
    if (response.status === status) cache.set(request.path, text);
    return json(cache.has(request.path) ? status : response.status, text);
  });
}

/** Changes a copy of the to-dos and stores it later, so that concurrent changes are lost. */
const withLostChanges = (route: Route): Handler =>
  override(route, async (request, state) => {
    const copy = { todos: new Map(state.todos), lastId: state.lastId };
    const response = handleRequest(request, copy);
    if (!response.ok) return response;
    state.lastId = copy.lastId;
    await Bun.sleep(1);
    state.todos.clear();
    for (const [id, todo] of copy.todos) state.todos.set(id, todo);
    return response;
  });

function withSharedResponse(route: Route): Handler {
  let shared = "";
  return withResponse(route, async (response) => {
    if (!response.ok) return response;
    shared = await response.text();
    await Bun.sleep(2);
    return json(response.status, shared);
  });
}

const withTodoBefore = (route: Route): Handler =>
  withResponse(route, (response, { path }, { todos }) => {
    const other = todos.get(parseId(path) - 1n);
    return response.ok && other !== undefined ? json(200, serialize(other)) : response;
  });

const withStatus = (route: Route, statuses: Readonly<Record<number, number>>): Handler =>
  withResponse(route, async (response) => {
    const [text, { status, headers }] = [await response.text(), response];
    return new Response(text === "" ? null : text, { headers, status: statuses[status] ?? status });
  });

/** Stores the credentials of all requests to a path in one variable and reads it after a delay. */
function withSharedCredentials(route: Route): Handler {
  let authorization = "";
  return withRequest(route, async (request) => {
    authorization = request.authorization;
    await Bun.sleep(2);
    return { authorization };
  });
}

const accept = (route: Route, when: (authorization: string, request: ParsedRequest) => boolean): Handler =>
  withRequest(route, (request) => {
    const valid = route === ADMIN ? basic : bearer;
    return when(request.authorization, request) ? { authorization: valid } : {};
  });

const bearer = `Bearer ${token}`;
const basic = `Basic ${Buffer.from(`${user.name}:${user.password}`).toString("base64")}`;

const isWrong = ({ authorization }: ParsedRequest): boolean => !["", bearer, basic].includes(authorization);

/** Accepts requests of a route that name a user in a header for proxies. */
const withIdentity = (route: Route): Handler =>
  accept(route, (_sent, { headers }) => headers.has("x-remote-user"));

/** Sets a cookie in the accepted responses of a route, and accepts requests with it. */
function withCookie(route: Route): Handler {
  const withKnown = accept(route, (_sent, { headers }) => headers.get("cookie") === "session=known");
  return async (request, state) => {
    const response = await withKnown(request, state);
    if (matches(route, request) && response.ok) response.headers.set("set-cookie", "session=known; Path=/");
    return response;
  };
}

const guardingOnlyGet = (route: Route): Handler =>
  accept(route, (sent, { method }) => method !== "GET" && sent !== "");

function parseBasic(authorization: string): [name: string, password: string] {
  const [, encoded = ""] = /^Basic (.+)$/.exec(authorization) ?? [];
  const [, name = "", password = ""] = /^(.*?):(.*)$/s.exec(Buffer.from(encoded, "base64").toString()) ?? [];
  return [name, password];
}

const acceptPassword = (when: (password: string) => boolean): Handler =>
  accept(ADMIN, (sent) => {
    const [name, password] = parseBasic(sent);
    return name === user.name && when(password);
  });

/** Changes the credentials of requests to whoami, given those of all earlier requests. */
function withHistory(change: (authorization: string, earlier: readonly string[]) => string): Handler {
  const earlier: string[] = [];
  return withRequest(WHOAMI, (request) => {
    const authorization = change(request.authorization, earlier);
    earlier.push(request.authorization);
    return { authorization };
  });
}

const trimTitles = (text: string): string =>
  text.replace(
    /"title":("(?:[^"\\]|\\.)*")/g,
    (_, title) => `"title":${JSON.stringify(JSON.parse(title).trim())}`,
  );

/** The one rule that must fail, and what the server does wrong. */
type Fault = `${RuleId}: ${string}`;

const each = <T>(make: (change: T) => Handler, table: Readonly<Record<Fault, NoInfer<T>>>) =>
  Object.fromEntries(Object.entries(table).map(([fault, change]) => [fault, make(change)]));

const FAULTS: Readonly<Record<Fault, Handler>> = {
  // Ids and stored to-dos
  "todo.id.not-reused: reuses the id of a deleted to-do": after(DELETE, 204, (state) => {
    state.lastId = [...state.todos.keys()].at(-1) ?? 0n;
  }),
  "todo.id.step: increments ids by two": before(CREATE, (state) => {
    if (state.lastId > 0n) state.lastId += 1n;
  }),
  "todo.id.first: starts ids at 0": before(CREATE, (state) => {
    if (state.lastId === 0n && state.todos.size === 0) state.lastId = -1n;
  }),
  "todo.id.assigned: uses the id in the body": override(CREATE, ({ body }, state) => {
    const [id, title] = [ownProperty(parseJson(body), "id"), parseTitle(body)];
    return typeof id === "bigint" && title !== undefined ? storeTodo(title, state, id) : undefined;
  }),
  "todo.id.increasing: assigns descending ids": overrideTitle(isValid, (title, state) =>
    storeTodo(title, state, state.lastId < 2n ? state.lastId * 999_999n + 1n : state.lastId - 1n),
  ),
  "todo.id.increasing: restores a deleted to-do with the same title": (() => {
    const deleted = new Map<string, bigint>();
    return override(TODOS, ({ method, path, body }, state) => {
      const todo = findTodo(path, state);
      if (method === "DELETE" && todo !== undefined) deleted.set(todo.title, todo.id);
      const title = parseTitle(body) ?? "";
      const id = method === "POST" ? deleted.get(title) : undefined;
      return id === undefined || state.todos.has(id) ? undefined : storeTodo(title, state, id);
    });
  })(),
  "todo.done.assigned: uses the done in the body": withText(CREATE, (text, { body }) =>
    /"done":true/.test(body) ? text.replace("false", "true") : text,
  ),
  "counter.only-stored: uses an id for a rejected to-do": after(CREATE, 422, (state) => {
    state.lastId += 1n;
  }),
  "counter.only-stored: uses an id for each request": before(TODOS, (state, { method }) => {
    if (method !== "POST" && state.lastId > 0n) state.lastId += 1n;
  }),
  "create.invalid.not-stored: stores a to-do that it rejects": after(CREATE, 422, (state, { body }) => {
    storeTodo(parseTitle(body) ?? "", state);
  }),
  "create.stored: stores nothing": after(CREATE, 201, ({ todos }) => todos.clear()),
  "create.201: responds to POST with 200": withStatus(CREATE, { 201: 200 }),
  "create.answer: responds to POST with only the id": inText(CREATE, /^(\{"id":\d+).*/, "$1}"),
  "create.done: creates to-dos that are done": withText(CREATE, (text, _request, state) => {
    changeTodo(state, state.lastId, () => ({ done: true }));
    return text.replace('"done":false', '"done":true');
  }),
  "create.same-title: rejects it": reject(CREATE, 409, ({ body }, { todos }) =>
    [...todos.values()].some(({ title }) => title === parseTitle(body)),
  ),
  "create.201: treats titles as equal without case": reject(CREATE, 409, ({ body }, { todos }) => {
    const others = [...todos.values()].filter(({ title }) => title !== parseTitle(body));
    return others.some(({ title }) => title.toLowerCase() === parseTitle(body)?.toLowerCase());
  }),
  "todo.keys: adds a key to each to-do": inText(TODOS, /"id":/g, '"links":[],"id":'),
  "todo.id.type: returns ids as strings": inText(TODOS, /"id":(\d+)/g, '"id":"$1"'),
  "todo.title.type: lists titles as null": inText(LIST, /"title":"([^"\\]|\\.)*"/g, '"title":null'),
  "todo.done.type: returns done as a number": inText(LIST, /"done":\w+/g, '"done":0'),
  "json.success: sends JSON as text/html": withHeader(TODOS, 200, "content-type", "text/html"),
  "json.errors: sends errors as text": withHeader(TODOS, 404, "content-type", "text/plain"),
  "json.negotiated: shows the list as HTML to browsers": override(LIST, ({ headers }) =>
    /text\/html/.test(headers.get("accept") ?? "") ? new Response("<ul></ul>") : undefined,
  ),
  "list.query: routes by the path with its query": reject(LIST, 404, ({ search }) => search !== ""),
  "list.200: fails on GET of the list": reject(LIST, 500),
  "list.array: wraps the list in an object": withText(LIST, (text) => `{"items":${text}}`),
  "list.order: sorts the list as text": withList((elements) => elements.sort()),
  "list.unlimited: lists only the first 250": withList((elements) => elements.slice(0, 250)),
  "list.empty: returns null for an empty list": withText(LIST, (text) => text.replace(/^\[\]$/, "null")),
  "list.empty: returns 404 after the last DELETE": reject(LIST, 404, isEmptied),
  "list.complete: stores the done in the body, but returns false": after(CREATE, 201, (state, { body }) => {
    if (/"done":true/.test(body)) changeTodo(state, state.lastId, () => ({ done: true }));
  }),

  // Titles and bodies
  ...each((when: (title: string) => boolean) => overrideTitle(when, storeTodo), {
    "title.long.422: accepts a title of 121 characters": (title) => /^\S.{120}$/s.test(title),
    "title.blank.422: accepts a blank title": (title) => /^\s{1,120}$/.test(title),
    "title.blank.422: accepts a blank title that is too long": (title) => /^\s{121,}$/.test(title),
  }),
  ...each(rejectTitle, {
    "title.120: rejects a title of 120 characters": (title) => /^x{120}$/.test(title),
    "title.characters: counts bytes instead of characters": (title) =>
      title.length <= 120 && Buffer.byteLength(title) > 120,
    "title.padded: rejects outer whitespace": (title) => !["", title].includes(title.trim()),
  }),
  "validation.together: sends none": inText(CREATE, /must not be empty".*characters/, "is invalid"),
  ...each((message: string) => inText(CREATE, /must [\w ]+/g, message), {
    "title.empty.message: sends no known message": "is invalid",
    "validation.only-failed: always reports both": "title must not be empty, must be at most 120 characters",
  }),
  "validation.field: omits the field": inText(CREATE, /"field":"title",/g, ""),
  "title.empty.422: rejects invalid titles with 400": withStatus(CREATE, { 422: 400 }),
  "title.long.message: changes its wording": inText(CREATE, "must be at most", "must not exceed"),
  "title.same: trims titles in GET": withText(READ, trimTitles),
  "title.same: trims titles in the list": withText(LIST, trimTitles),
  "title.same: trims titles in the response to PATCH": withText(UPDATE, trimTitles),
  "title.same: trims the stored title on PATCH": after(UPDATE, 200, (state, { path }) =>
    changeTodo(state, parseId(path), ({ title }) => ({ title: title.trim() })),
  ),
  "create.title: collapses whitespace inside titles": inBody(/(\w) +(\w)/g, "$1 $2"),
  "create.title: does not decode escapes in JSON": inBody(/\\u(?=00e9)/g, "\\\\u"),
  "create.title: normalizes titles that look like numbers": inBody(/"title":"0+([0-9]+)"/, '"title":"$1"'),
  "create.title: reads YAML in titles": inBody(/"title":"no"/i, '"title":"false"'),
  "create.title: replaces patterns in titles": overrideTitle(isValid, (title, state) =>
    storeTodo("%s".replace("%s", title), state),
  ),
  "create.title: normalizes titles to NFC": withBody((body) => body.normalize("NFC")),
  "create.title: escapes HTML in titles": inBody(/</g, "&lt;"),
  "create.title: truncates titles after 200 bytes": withBody((body) =>
    body.replace(/[^"]{110,120}(?="}$)/, (title) =>
      /^(.)\1*$/u.test(title) ? title : Buffer.from(title).subarray(0, 200).toString(),
    ),
  ),
  "create.validates-first: stores the first element of an array": inBody(/^\[(\{"title".*)]$/s, "$1"),
  "create.in-parts: decodes each part of a body alone": withRequest(CREATE, ({ parts }) => ({
    body: parts.map((part) => Buffer.from(part).toString()).join(""),
  })),
  "body.create.4xx: responds to malformed JSON with 500": reject(CREATE, 500, isMalformed),
  "body.update.4xx: fails on malformed JSON": reject(UPDATE, 500, isMalformed),
  "body.update.4xx: accepts a trailing comma in a PATCH": inBody(/^(\{"done":true),}$/, "$1}"),
  "newtodo.title.string: converts a number to a title": inBody(/^\{"title":(\d+)}$/, '{"title":"$1"}'),
  "newtodo.title.required: stores a to-do without a title": override(CREATE, ({ body }, state) =>
    body === "{}" ? storeTodo("untitled", state) : undefined,
  ),

  // GET, PATCH and DELETE
  "get.200: fails on GET of a to-do": reject(READ, 500),
  "get.absent.404: responds to an absent id with 400": withStatus(TODO, { 404: 400 }),
  "get.answer: responds to GET with the to-do before it": withTodoBefore(READ),
  "get.not-modified: takes every conditional GET for unchanged": override(/^GET/, ({ headers }) =>
    headers.has("if-none-match") ? new Response(null, { status: 304 }) : undefined,
  ),
  "update.200: fails on PATCH": reject(UPDATE, 500),
  "update.malformed.any-body: validates it first": reject(UPDATE, 422, ({ body }) => !/"done":\w/.test(body)),
  "update.malformed.400: responds to PATCH with 404": withStatus(UPDATE, { 400: 404 }),
  "update.absent.404: responds with 200": withAnswer(UPDATE, 404, () => json(200, "{}")),
  "update.answer: responds to PATCH with the to-do before it": withTodoBefore(UPDATE),
  "update.to-false: treats done=false as true": inBody('"done":false', '"done":true'),
  "update.to-true: toggles done instead of setting it": withRequest(UPDATE, ({ path, body }, state) => {
    const { done } = findTodo(path, state) ?? {};
    return { body: body.replace(/"done":(?:true|false)/, `"done":${!done}`) };
  }),
  "patch.only-done: changes the to-do that the body names": withRequest(UPDATE, ({ body }, state) => {
    const id = ownProperty(parseJson(body), "id");
    return typeof id === "bigint" && state.todos.has(id) ? { path: `/api/todos/${id}` } : {};
  }),
  "patch.only-done: returns the title in the body of a PATCH": withText(UPDATE, (text, { body }) => {
    const title = parseTitle(body);
    return title === undefined ? text : text.replace(/"title":"[^"]*"/, `"title":${JSON.stringify(title)}`);
  }),
  "patch.done.boolean: accepts a string as boolean": inBody(/"done":"(true|false)"/, '"done":$1'),
  "patch.done.required: treats a missing done as false": inBody(/^\{}$/, '{"done":false}'),
  "update.only-one: changes every to-do with the same title": after(UPDATE, 200, (state, { path }) => {
    const changed = findTodo(path, state);
    for (const { id, title } of state.todos.values())
      if (changed?.title === title) changeTodo(state, id, () => ({ done: changed.done }));
  }),
  "absent.unchanged: creates a to-do on a rejected PATCH": after(UPDATE, 404, ({ todos }, { path }) => {
    const id = parseId(path);
    if (id > 0n) todos.set(id, { id, title: "new", done: false });
  }),
  "delete.204: responds to DELETE with 200": withStatus(DELETE, { 204: 200 }),
  "delete.empty: responds with a body": withAnswer(DELETE, 204, () => json(200, '{"deleted":true}')),
  "delete.malformed.400: responds to DELETE with 404": withStatus(DELETE, { 400: 404 }),
  "delete.absent.404: responds with 204": withAnswer(DELETE, 404, () => new Response(null, { status: 204 })),
  "delete.either-state: does not delete to-dos that are done": reject(DELETE, 409, isDone),
  "delete.only-one: deletes every id with the same start": after(DELETE, 204, ({ todos }, { path }) => {
    for (const id of todos.keys()) if (`/api/todos/${id}`.startsWith(path)) todos.delete(id);
  }),
  "delete.only-one: deletes every to-do with the same title": before(DELETE, ({ todos }, { path }) => {
    const deleted = todos.get(parseId(path));
    for (const { id, title } of todos.values())
      if (deleted?.title === title && id !== deleted.id) todos.delete(id);
  }),

  // Caches, and requests at the same time
  "update.stored: caches a to-do until it is deleted": withCache(READ, ["DELETE"]),
  "delete.removes: caches a to-do until another is changed": withCache(READ, ["PATCH"]),
  "list.complete: caches the list until a POST or DELETE": withCache(LIST, ["POST", "DELETE"]),
  "create.stored: caches that a to-do is absent": withCache(READ, [], 404),
  "todos.concurrent: loses concurrent POSTs": withLostChanges(CREATE),
  "todos.concurrent: loses concurrent PATCHes": withLostChanges(UPDATE),
  "todos.concurrent: loses concurrent DELETEs": withLostChanges(DELETE),
  "todo.id.unique: mixes responses to concurrent POSTs": withSharedResponse(CREATE),
  "todos.concurrent: mixes responses to concurrent PATCHes": withSharedResponse(UPDATE),
  "todos.concurrent: mixes responses to concurrent GETs": withSharedResponse(READ),
  "todos.concurrent: lists a deleted to-do as null": override(LIST, async (_request, { todos }) => {
    const ids = [...todos.keys()];
    await Bun.sleep(2);
    const elements = ids.map((id) => todos.get(id));
    return json(200, `[${elements.map((todo) => (todo === undefined ? "null" : serialize(todo)))}]`);
  }),
  "todos.concurrent: changes done while it deletes a to-do": before(DELETE, async (state, { path }) => {
    changeTodo(state, parseId(path), ({ done }) => ({ done: !done }));
    await Bun.sleep(2);
  }),
  "todos.concurrent: stores a to-do again that is deleted": after(UPDATE, 200, async (state, { path }) => {
    const todo = findTodo(path, state);
    await Bun.sleep(2);
    if (todo !== undefined) state.todos.set(todo.id, todo);
  }),
  "delete.once: deletes a to-do twice at the same time": override(DELETE, async (request, state) => {
    const todo = findTodo(request.path, state);
    await Bun.sleep(5);
    const response = handleRequest(request, state);
    return todo === undefined ? response : new Response(null, { status: 204 });
  }),

  // Ids in paths
  "get.malformed.400: responds to a malformed id with 404": withStatus(TODO, { 400: 404 }),
  "get.malformed.400: fails on superscript digits": reject(TODO, 500, ({ path }) => path.endsWith("%C2%B2")),
  "get.malformed.400: ignores text after an id": inPath(/(?<=todos\/\d+)\D.*$/, () => ""),
  "get.malformed.400: accepts digits of other scripts in ids": inPath("%D9%A1", () => "1"),
  "get.malformed.400: accepts -0 as an id": inPath(/-0$/, () => "0"),
  "get.malformed.400: accepts a newline after an id": inPath(/%0A$/, () => ""),
  "get.answer: reads a leading zero as octal": inPath(/(?<=todos\/)0[0-7]+$/, (id) =>
    String(Number.parseInt(id, 8)),
  ),
  "id.range: accepts only ids of 63 bits": reject(TODO, 400, ({ path }) => parseId(path) >= 2n ** 63n),
  "id.range: rounds ids to doubles": inPath(/\d{17,}$/, (id) => String(BigInt(Number(id)))),
  "id.range: reduces ids modulo 2^32": inPath(/\d+$/, (id) =>
    BigInt(id) < 2n ** 64n ? String(BigInt.asUintN(32, BigInt(id))) : id,
  ),
  "id.out-of-range: reduces ids modulo 2^64": inPath(/\d+$/, (id) => String(BigInt.asUintN(64, BigInt(id)))),
  "api.prefix: also serves to-dos outside /api": inPath(/^\/todos/, () => "/api/todos"),
  "api.no-version: also serves to-dos under a version prefix": inPath("/api/v1/", () => "/api/"),

  // The bearer check
  "todos.open: requires credentials": reject(TODOS, 401, (sent) => sent.authorization !== bearer),
  "todos.no-authentication: rejects credentials": reject(TODOS, 401, (sent) => sent.authorization !== ""),
  ...each((when: (sent: string) => boolean) => accept(WHOAMI, when), {
    "bearer.unknown.401: accepts any token": (sent) => /^Bearer ./.test(sent),
    "bearer.near-miss.401: accepts a token with a suffix": (sent) => sent.startsWith(bearer),
    "bearer.near-miss.401: accepts a prefix": (sent) => sent.length > 7 && bearer.startsWith(sent),
    "bearer.near-miss.401: accepts a token with a word after it": (sent) => sent.startsWith(`${bearer} `),
    "bearer.near-miss.401: decodes tokens from Base64": (sent) =>
      Buffer.from(sent.slice(7), "base64").toString() === token,
    "bearer.near-miss.401: removes spaces in tokens": (sent) =>
      sent.startsWith("Bearer ") && sent.replaceAll(" ", "") === bearer.replace(" ", ""),
    "bearer.near-miss.401: compares only letters and digits": (sent) =>
      sent.startsWith("Bearer ") && sent.replace(/\W/g, "") === bearer.replace(/\W/g, ""),
    "bearer.scheme.401: accepts any scheme": (sent) => sent.replace(/^\w+ /, "Bearer ") === bearer,
    "bearer.scheme.401: finds a token anywhere in the header": (sent) => sent.endsWith(bearer),
    "bearer.scheme.401: accepts it as a password": (sent) => parseBasic(sent)[1] === token,
  }),
  "bearer.missing.challenge: sends none": reject(WHOAMI, 401, (sent) => sent.authorization !== bearer),
  "bearer.unknown.challenge: sends none": reject(WHOAMI, 401, isWrong),
  "bearer.missing.401: rejects tokens with 403": withStatus(WHOAMI, { 401: 403 }),
  "bearer.missing.401: trusts the name in a header": withIdentity(WHOAMI),
  "bearer.missing.401: accepts its cookie instead of a token": withCookie(WHOAMI),
  "bearer.missing.401: accepts requests after a known token": withHistory((sent, earlier) =>
    sent === "" && earlier.includes(bearer) ? bearer : sent,
  ),
  "bearer.empty.401: responds with 400": reject(WHOAMI, 400, (sent) => sent.authorization === "Bearer"),
  "bearer.refused.no-name: returns a name": withResponse(WHOAMI, (sent) => new Response(clientName, sent)),
  "bearer.router: guards only GET of whoami": override(/^PUT \/api\/whoami$/, () => json(200, "{}")),
  "bearer.router: accepts unknown tokens for other methods of whoami": guardingOnlyGet(WHOAMI),
  "client.request: shares the Client between concurrent requests": withSharedCredentials(WHOAMI),
  "whoami.200: responds to whoami with 203": withStatus(WHOAMI, { 200: 203 }),
  "whoami.200: accepts a token once": withHistory((sent, earlier) => (earlier.includes(sent) ? "" : sent)),
  "whoami.name: returns the name of another client": withText(WHOAMI, () => "someone"),
  "whoami.text: responds to whoami with JSON": withAnswer(WHOAMI, 200, () => json(200, `"${clientName}"`)),

  // The Basic check
  ...each(acceptPassword, {
    "basic.password.refused: accepts a longer password": (sent) => sent.startsWith(user.password),
    "basic.password.refused: ignores case": (sent) => sent.toLowerCase() === user.password.toLowerCase(),
    "basic.password.refused: ignores accents": (sent) =>
      sent.replaceAll("é", "e") === user.password.replaceAll("é", "e"),
    "basic.password.refused: reads up to a NUL byte": (sent) => sent.split("\0")[0] === user.password,
    "basic.password.refused: compares lengths": (sent) => sent.length === user.password.length,
  }),
  ...each((when: (sent: string) => boolean) => accept(ADMIN, when), {
    "basic.user.refused: puts the user in a query": (sent) => /'--$/.test(parseBasic(sent)[0]),
    "basic.user.refused: accepts a prefix of the user": (sent) => {
      const [name, password] = parseBasic(sent);
      return name !== "" && user.name.startsWith(name) && password === user.password;
    },
    "basic.scheme.refused: accepts the token as a password": (sent) => parseBasic(sent)[1] === token,
    "basic.password.refused: accepts just the user": (sent) => sent === `Basic ${btoa(user.name)}`,
    "basic.scheme.refused: accepts any scheme": (sent) => sent.replace(/^\w+ /, "Basic ") === basic,
    "basic.malformed.refused: accepts very long passwords": (sent) => sent.length > 1000,
    "basic.missing.refused: accepts requests without credentials": () => true,
  }),
  "basic.missing.refused: trusts the name in a header": withIdentity(ADMIN),
  "basic.missing.refused: accepts its cookie instead of credentials": withCookie(ADMIN),
  "basic.malformed.refused: responds to wrong passwords with 500": reject(ADMIN, 500, isWrong),
  "basic.router: guards only the path /admin/": override(/^GET \/admin\/.+/, () => json(200, "{}")),
  "basic.router: accepts wrong passwords for other methods of /admin/": guardingOnlyGet(ADMIN),
  "basic.refused.no-greeting: does not guard //admin/": override(
    /^GET \/\/admin\/$/,
    () => new Response(`Hello, ${user.name}!`),
  ),
  "basic.realm: sends none": withHeader(ADMIN, 401, "www-authenticate", "Basic"),
  "basicuser.request: shares the BasicUser between concurrent requests": withSharedCredentials(ADMIN),
  "admin.200: responds to admin with 203": withStatus(ADMIN, { 200: 203 }),
  "admin.greeting: greets without a name": withText(ADMIN, () => "Hello!"),
  "admin.text: greets in JSON": withAnswer(ADMIN, 200, () => json(200, `{"hello":"${user.name}"}`)),
};

const withErrors = (format: (messages: string[]) => unknown): Handler =>
  withAnswer(CREATE, 422, async (response) =>
    json(422, JSON.stringify(format((await response.text()).match(/must [\w ]+/g) ?? []))),
  );

/** Correct servers that differ from the reference where the specification permits it. */
const PERMITTED_VARIANTS: Readonly<Record<string, Handler>> = {
  "limits bodies to 1 KiB": reject(TODOS, 413, ({ body }) => Buffer.byteLength(body) > 1024),
  "reports only the first violation": inText(CREATE, /},\{"field".*?}/, "}"),
  "reports only the length": inText(CREATE, /\{"field":"title","message":"must not be empty"},/, ""),
  "trims titles": inBody(/^\{"title":"(\s|\\[nt])*(.*?\w.*?)(\s|\\[nt])*"}$/, '{"title":"$2"}'),
  "counts UTF-16 code units": rejectTitle((title) => title.length > 120 && [...title].length <= 120),
  "lists messages under their field": withErrors((title) => ({ errors: { title } })),
  "joins messages in one string": withErrors((messages) => ({ error: `title ${messages.join(", ")}` })),
  "names the field with a JSON pointer": withErrors((messages) =>
    messages.map((detail) => ({ pointer: "#/title", detail })),
  ),
  "sends other errors without a body": withResponse(TODOS, (response) =>
    [400, 404].includes(response.status) ? new Response(null, { status: response.status }) : response,
  ),
  "rejects malformed bodies with 422": reject(TODOS, 422, isMalformed),
  "rejects unknown keys": reject(TODOS, 422, ({ body }) => /"(title|done)":[^,]*,"|"id":/.test(body)),
  "limits the rate after five wrong credentials": (() => {
    const wrong: string[] = [];
    return withResponse(/whoami|admin/, (response, { path }) => {
      if (wrong.filter((each) => each === path).length < 5) {
        if (!response.ok) wrong.push(path);
        return response;
      }
      return new Response(null, { status: 429, headers: { "retry-after": "0.01" } });
    });
  })(),
  "limits the rate of all requests": (() => {
    let requests = 0;
    return override(/./, () => {
      requests += 1;
      if (requests % 500 !== 0) return undefined;
      return new Response("{}", { status: 429, headers: { "retry-after": "0.01" } });
    });
  })(),
  "rejects ids with leading zeros": reject(TODO, 400, ({ path }) => /todos\/0\d/.test(path)),
  "rejects Basic credentials with 403": withStatus(ADMIN, { 401: 403 }),
  "greets in HTML": withAnswer(
    ADMIN,
    200,
    () => new Response(`<h1>Hello, ${user.name}</h1>`, { headers: { "content-type": "text/html" } }),
  ),
};

test("each rule relies on rules that exist", () => {
  const ids = new Set(rules.map(({ id }) => id));
  expect([...reliesOn].flat(2).filter((id) => !ids.has(id))).toEqual([]);
});

test("each rule that the kit judges is violated by a faulty server", () => {
  const violated = new Set(Object.keys(FAULTS).map((fault) => fault.split(": ")[0]));
  const observable = rules.filter(({ notObservable }) => notObservable === undefined);
  expect(observable.map(({ id }) => id).filter((id) => !violated.has(id))).toEqual([]);
});

describe("checkServer", () => {
  test("leaves the to-dos of other clients unchanged while they write", async () => {
    const state = stateOfOthers();
    const otherIds = new Set([7n]);
    const withOtherClients = before(CREATE, (state) => {
      storeTodo("concurrent", state);
      otherIds.add(state.lastId);
    });
    const report = await check(withOtherClients, { ...ALL_OPTIONS, fresh: false }, state);
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(new Set(state.todos.keys())).toEqual(otherIds);
  });

  test("deletes its to-dos when it is stopped", async () => {
    const state = stateOfOthers();
    const stop = new AbortController();
    const stopsLate = before(/./, ({ todos }) => {
      if (todos.size === 40) stop.abort();
    });
    const options = { ...ALL_OPTIONS, fresh: false, signal: stop.signal };
    await expect(check(stopsLate, options, state)).rejects.toThrow(Stopped);
    expect([...state.todos.keys()]).toEqual([7n]);
  });

  test("sends fewer than ten wrong passwords for each user", async () => {
    const attempts = new Map<string, number>();
    const counts = withResponse(/\/admin/, (response, { authorization }) => {
      const [name] = parseBasic(authorization);
      if (name !== "" && !response.ok) attempts.set(name, (attempts.get(name) ?? 0) + 1);
      return response;
    });
    expect(idsWithStatus(await check(counts), "failed")).toEqual([]);
    expect(attempts.get(user.name)).toBeGreaterThan(5);
    expect([...attempts].filter(([, count]) => count >= 10)).toEqual([]);
  });

  test("accepts the reference server, fails if a credential is missing, but not without --fresh", async () => {
    const { token, user, clientName, ...options } = ALL_OPTIONS;
    const [all, noFresh, noToken, noUser] = [
      await check(handleRequest),
      await check(handleRequest, { ...options, token, user, fresh: false }),
      await check(handleRequest, { ...options, user }),
      await check(handleRequest, { ...options, token }),
    ];
    expect([noFresh, noToken, noUser].map(({ passed }) => passed)).toEqual([true, false, false]);
    expect(all).toMatchObject({ passed: true, complete: true });
    expect(idsWithStatus(all, "skipped")).toEqual([]);
    expect(idsWithStatus(noFresh, "skipped")).toContain("todo.id.first");
    expect(idsWithStatus(noToken, "skipped")).toContain("whoami.200");
    expect(idsWithStatus(noUser, "skipped")).toContain("admin.200");
  });

  test.each(Object.entries(PERMITTED_VARIANTS))("accepts a server that %s", async (_, handler) => {
    expect(idsWithStatus(await check(handler), "failed")).toEqual([]);
  });

  test.each(Object.entries(FAULTS))("rejects a faulty server: %s", async (fault, handler) => {
    const [expected = ""] = fault.split(": ");
    const failed = await withServer(handler, emptyState(), async (baseUrl) => {
      const options = { baseUrl, ...ALL_OPTIONS };
      const client = createClient(options);
      // The model and the cases look at different routes, so one of them suffices.
      const isOfModel = rules.some(({ id, byModel }) => id === expected && byModel === true);
      if (isOfModel) return [(await runModel(client, options)).violation?.rule];
      return idsWithStatus({ results: await runCases(client, options) }, "failed");
    });
    expect<unknown>(failed).toEqual([expected]);
  });

  test("reports faults of different routes together, and names one for each rule that it does not judge", async () => {
    const { results, passed } = await check(withStatus(/^POST|whoami/, { 200: 203, 201: 200 }));
    expect(passed).toBe(false);
    expect(idsWithStatus({ results }, "failed")).toEqual(
      expect.arrayContaining(["create.201", "whoami.200"]),
    );
    const reasons = new Map<string, unknown>(
      results.map((result) => [result.rule.id, "reason" in result && result.reason]),
    );
    expect(reasons.get("list.complete")).toBe("not judged because create.201 failed");
    expect(reasons.get("whoami.name")).toBe("not judged because whoami.200 failed");
  });

  test("shows no token in its report, even if a path contains it", async () => {
    const servesPath = override(/^GET \/api\/whoami\/Reference/, () => new Response(clientName));
    const report = JSON.stringify(await check(servesPath));
    expect(report).toMatch(/GET \/api\/whoami\/SECRET(?: with [^"]*)?: expected no 2xx status/);
    expect(report).not.toContain(token);
  });

  test("continues after a request that gets no response", async () => {
    const hangs = override(READ, () => new Promise<never>(() => {}));
    const report = await check(hangs, { ...ALL_OPTIONS, timeoutMs: 200 });
    expect(idsWithStatus(report, "failed")).toEqual(["get.200"]);
    expect(idsWithStatus(report, "passed")).toContain("whoami.200");
  });
});

/** Faults that show only in special requests, each with the number of commands that show it. */
const MINIMAL: Readonly<Record<string, [Handler, number]>> = {
  "loses a soft hyphen": [withBody((body) => body.replaceAll("\u00ad", "")), 1],
  "skips an id when creates run at once": [
    (() => {
      let running = 0;
      return before(CREATE, async (state) => {
        running += 1;
        await Bun.sleep(1);
        if (running > 1) state.lastId += 1n;
        running -= 1;
      });
    })(),
    3,
  ],
  "lists only the first 100": [withList((elements) => elements.slice(0, 100)), 2],
  "shows a to-do only to its creator": [
    (() => {
      const owners = new Map<bigint, string>();
      return withResponse(TODOS, async (response, request, state) => {
        if (request.method === "POST" && response.ok) owners.set(state.lastId, request.authorization);
        const owner = owners.get(parseId(request.path));
        return owner === undefined || owner === request.authorization ? response : problem(404);
      });
    })(),
    2,
  ],
};

async function run(commandLine: readonly string[], variables: Readonly<Record<string, string | undefined>>) {
  const env = { ...process.env, ...variables };
  const child = Bun.spawn([...commandLine], { env, stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { code: await child.exited, out, err };
}

test.each(Object.entries(MINIMAL))("the commands show that a server %s", async (_, [handler, count]) => {
  await withServer(handler, emptyState(), async (baseUrl) => {
    const { results } = await checkServer({ baseUrl, ...ALL_OPTIONS });
    const commands = results.flatMap((result) => ("commands" in result ? (result.commands ?? []) : []));
    // A race may show in another place, with fewer requests.
    expect(commands.length).toBeGreaterThan(1);
    expect(commands.length).toBeLessThanOrEqual(count + 1);
    const env = { CONFORMANCE_TOKEN: token, CONFORMANCE_USER: `${user.name}:${user.password}` };
    const { code, out } = await run(["bash", "-c", commands.join("\n")], env);
    expect([code, out]).toEqual([0, expect.stringContaining("HTTP/1.1 ")]);
  });
});

test.each(NOTATIONS)("a body in the notation %p is sent as written", (write) => {
  const body = write("title", '"😀 é/"');
  expect(Buffer.from(body).toString()).toBe(body);
  expect(parseJson(body)).toEqual({ title: "😀 é/" });
});

test("concurrent updates may have any order, even if the first changes nothing", () => {
  const todo = (done: boolean) => `{"id":1,"title":"a","done":${done}}`;
  const respond = (text: string) =>
    new CapturedResponse("", 200, new Headers({ "content-type": "application/json" }), text);
  const model = new Model(true);
  model.adopt([{ id: 1n, title: "a", done: true }]);
  const updates = [true, false].map((done) => ({
    request: { method: "PATCH", body: `{"done":${done}}` } as const,
    id: "1",
    response: respond(todo(done)),
    began: 0,
    ended: 1,
  }));
  const after = applyInSomeOrder(model, updates, respond(`[${todo(true)}]`));
  expect(after.todos.get(1n)).toEqual({ title: "a", done: true });
});

test("the same seed generates the same requests", () => {
  const generate = (seed: number) => {
    const generator = new Generator(seed, ["token"]);
    return [
      ...generator.required.map((sequence) => sequence()),
      ...Array.from({ length: 20 }, () => generator.any()),
    ];
  };
  expect(generate(7)).toEqual(generate(7));
  expect(generate(8)).not.toEqual(generate(7));
});

describe("npm run conformance", () => {
  const kit = (...args: readonly string[]) =>
    run([process.execPath, "--no-env-file", `${import.meta.dir}/run.ts`, ...args], {
      CONFORMANCE_TOKEN: undefined,
      CONFORMANCE_USER: undefined,
    });

  test("prints every rule and sets the exit code", async () => {
    const credentials = ["--token", token, "--user", `${user.name}:${user.password}`];
    const [passed, failed] = await withServer(handleRequest, emptyState(), async (baseUrl) => [
      await kit(baseUrl, ...credentials, "--client-name", clientName, "--fresh", "--seconds", "0"),
      await kit(baseUrl, ...credentials, "--client-name", "someone else", "--seconds", "0"),
    ]);
    expect(passed?.code).toBe(0);
    for (const { id } of rules) expect(passed?.out).toContain(` ${id} `);
    expect(failed?.code).toBe(1);
    expect(failed?.out).toMatch(
      /✗ whoami\.name .*\n.*GET \/api\/whoami .*expected exactly “someone else”, got 200/,
    );
    expect(failed?.out).toContain(" 1 failed, 0 not judged, ");
    expect(passed?.out + String(failed?.out)).not.toContain(token);
  });

  test.each([
    [[], 2, "missing required argument"],
    [["localhost:3000"], 2, "the URL must be http or https"],
    [["http://localhost", "--user", "ann"], 2, "NAME:PASSWORD"],
    [["http://localhost", "--token", ""], 2, "the token must be"],
    [["http://localhost", "--seed", "x"], 2, "at most nine digits"],
    [["http://localhost", "--tokn", "x"], 2, "unknown option '--tokn'"],
    [["http://127.0.0.1:1"], 1, "error: GET /api/todos: expected a response, got none: "],
  ] as const)("rejects arguments %p with one line and exit code %d: %s", async (args, exitCode, reason) => {
    const { code, out, err } = await kit(...args);
    expect({ code, out }).toEqual({ code: exitCode, out: "" });
    expect(err).toMatch(/^error: .+\n$/);
    expect(err).toContain(reason);
  });
});
