/** Tests of the kit: it accepts the reference server and rejects each faulty server by the rules that the fault violates. */
import { describe, expect, test } from "bun:test";
import { Generator } from "./generator.ts";
import { ownProperty, parseJson } from "./json.ts";
import { Model } from "./model.ts";
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
import { checkServer, createClient, judgeByModel, type Options, type Report, runCases } from "./runner.ts";
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

/** Returns the rules of the cases that a server fails. */
function failedCases(handler: Handler): Promise<string[]> {
  return withServer(handler, emptyState(), async (baseUrl) => {
    const options = { baseUrl, ...ALL_OPTIONS };
    const results = await runCases(createClient(options), options);
    return results.filter(({ status }) => status === "failed").map(({ rule }) => rule.id);
  });
}

/** Returns the rule that the model finds violated. */
function violatedByModel(handler: Handler): Promise<(string | undefined)[]> {
  return withServer(handler, emptyState(), async (baseUrl) => {
    const { violation } = await judgeByModel(createClient({ baseUrl, ...ALL_OPTIONS }), ALL_OPTIONS);
    return [violation?.rule];
  });
}

function emptyState(): State {
  return { todos: new Map(), lastId: 0n };
}

function idsWithStatus(report: Report, status: string): string[] {
  return report.results.filter((result) => result.status === status).map(({ rule }) => rule.id);
}

// Each helper returns the reference server with one change.

const listPath = /^\/api\/todos$/;
const todoPath = /^\/api\/todos\/./;
const anyTodoPath = /^\/api\/todos/;
const whoamiPath = /^\/api\/whoami$/;
const adminPath = /^\/admin\/$/;

/** Changes every request before it is handled. */
function withRequest(change: (request: ParsedRequest) => ParsedRequest): Handler {
  return (request, state) => handleRequest(change(request), state);
}

function withRequestBody(change: (body: string) => string): Handler {
  return withRequest((request) => ({ ...request, body: change(request.body) }));
}

function withPath(change: (path: string) => string): Handler {
  return withRequest((request) => ({ ...request, path: change(request.path) }));
}

/** Handles requests with this method and path by `handle`, and by the reference server when that returns undefined. */
function override(
  method: string,
  path: RegExp,
  handle: (request: ParsedRequest, state: State) => Response | undefined | Promise<Response | undefined>,
): Handler {
  return async (request, state) => {
    const matches = (method === "*" || method === request.method) && path.test(request.path);
    return (matches ? await handle(request, state) : undefined) ?? handleRequest(request, state);
  };
}

/** Changes the responses to requests with this method and path. */
function withResponse(
  method: string,
  path: RegExp,
  change: (response: Response, request: ParsedRequest, state: State) => Response | Promise<Response>,
): Handler {
  return override(method, path, (request, state) => change(handleRequest(request, state), request, state));
}

/** Handles POST requests whose title matches `when` by `handle`. */
function overrideTitle(
  when: (title: string) => boolean,
  handle: (title: string, state: State) => Response,
): Handler {
  return override("POST", listPath, ({ body }, state) => {
    const title = ownProperty(parseJson(body), "title");
    return typeof title === "string" && when(title) ? handle(title, state) : undefined;
  });
}

/** Returns the id in a path, or 0, which no to-do has. */
function parseId(path: string): bigint {
  return BigInt(/^\/api\/todos\/(\d+)$/.exec(path)?.[1] ?? 0);
}

function findTodo(path: string, { todos }: State): Todo | undefined {
  return todos.get(parseId(path));
}

/** Changes the elements of the list. */
function withList(change: (elements: string[]) => string[]): Handler {
  return override("GET", listPath, (_request, { todos }) => {
    const elements = [...todos.values()].map(serialize);
    return json(200, `[${change(elements).join()}]`);
  });
}

/** Changes the texts of the responses to requests with this method and path, except empty ones. */
function withText(
  method: string,
  path: RegExp,
  change: (text: string, request: ParsedRequest, state: State) => string,
): Handler {
  return withResponse(method, path, async (response, request, state) => {
    const text = await response.text();
    return new Response(text === "" ? null : change(text, request, state), response);
  });
}

/** Handles requests with this method and path by the reference server, and then changes its state or response. */
function after(
  method: string,
  path: RegExp,
  change: (state: State, request: ParsedRequest, response: Response) => void,
): Handler {
  return withResponse(method, path, (response, request, state) => {
    change(state, request, response);
    return response;
  });
}

function changeTodo({ todos }: State, id: bigint, change: (todo: Todo) => Partial<Todo>): void {
  const todo = todos.get(id);
  if (todo !== undefined) todos.set(id, { ...todo, ...change(todo) });
}

function parseTitle(body: string): string | undefined {
  const title = ownProperty(parseJson(body), "title");
  return typeof title === "string" ? title : undefined;
}

/** Caches the responses to GET with this path and status until a request with one of these methods. */
function withCache(path: RegExp, methods: readonly string[], status = 200): Handler {
  const cache = new Map<string, string>();
  return override("*", anyTodoPath, async (request, state) => {
    if (methods.includes(request.method)) cache.clear();
    if (request.method !== "GET" || !path.test(request.path)) return undefined;
    const response = handleRequest(request, state);
    const text = cache.get(request.path) ?? (await response.text());
    if (response.status === status) cache.set(request.path, text);
    return json(cache.has(request.path) ? status : response.status, text);
  });
}

/** Changes a copy of the to-dos and stores it later, so that concurrent changes are lost. */
function withLostChanges(method: string): Handler {
  return override(method, anyTodoPath, async (request, state) => {
    const copy = { todos: new Map(state.todos), lastId: state.lastId };
    const response = handleRequest(request, copy);
    if (!response.ok) return response;
    state.lastId = copy.lastId;
    await Bun.sleep(1);
    state.todos.clear();
    for (const [id, todo] of copy.todos) state.todos.set(id, todo);
    return response;
  });
}

/** Sends all concurrent requests of this method and path the last of their responses. */
function withSharedResponse(method: string, path: RegExp): Handler {
  let shared = "";
  return override(method, path, async (request, state) => {
    const response = handleRequest(request, state);
    if (!response.ok) return response;
    shared = await response.text();
    await Bun.sleep(2);
    return json(response.status, shared);
  });
}

/** Replaces statuses of the responses to requests with this method and path. */
function withStatus(method: string, path: RegExp, statuses: Readonly<Record<number, number>>): Handler {
  return withResponse(method, path, async (response) => {
    const [text, { status, headers }] = [await response.text(), response];
    return new Response(text === "" ? null : text, { headers, status: statuses[status] ?? status });
  });
}

function withHeader(response: Response, name: string, value: string): Response {
  response.headers.set(name, value);
  return response;
}

/** Stores the credentials of all requests to a path in one variable and reads it after a delay. */
function withSharedCredentials(path: RegExp): Handler {
  let authorization = "";
  return override("*", path, async (request, state) => {
    authorization = request.authorization;
    await Bun.sleep(2);
    return handleRequest({ ...request, authorization }, state);
  });
}

function withAuthorization(path: RegExp, change: (authorization: string) => string): Handler {
  return withRequest((request) =>
    path.test(request.path) ? { ...request, authorization: change(request.authorization) } : request,
  );
}

const bearer = `Bearer ${token}`;
const basic = `Basic ${Buffer.from(`${user.name}:${user.password}`).toString("base64")}`;

/** Returns the user and the password of a Basic header, or nothing. */
function parseBasic(authorization: string): string[] {
  const [, encoded = ""] = /^Basic (.+)$/.exec(authorization) ?? [];
  return /^(.*?):(.*)$/s.exec(Buffer.from(encoded, "base64").toString())?.slice(1) ?? [];
}

/** Changes the credentials of requests to whoami, given those of all earlier requests. */
function withHistory(change: (authorization: string, earlier: readonly string[]) => string): Handler {
  const earlier: string[] = [];
  return withAuthorization(whoamiPath, (sent) => {
    const changed = change(sent, earlier);
    earlier.push(sent);
    return changed;
  });
}

/** Accepts the passwords of the user that match. */
function withPassword(matches: (password: string) => boolean): Handler {
  return withAuthorization(adminPath, (sent) => {
    const [name, password] = parseBasic(sent);
    return name === user.name && password !== undefined && matches(password) ? basic : sent;
  });
}

function trimTitles(text: string): string {
  return text.replace(
    /"title":("(?:[^"\\]|\\.)*")/g,
    (_, title) => `"title":${JSON.stringify(JSON.parse(title).trim())}`,
  );
}

/** Faulty servers, each with the one rule that must fail. */
const FAULTS: Readonly<Record<string, [Handler, RuleId]>> = {
  "reuses the id of a deleted to-do": [
    after("DELETE", todoPath, (state) => {
      state.lastId = [...state.todos.keys()].at(-1) ?? 0n;
    }),
    "todo.id.not-reused",
  ],
  "increments ids by two": [
    override("POST", listPath, (_request, state) => {
      if (state.lastId > 0n) state.lastId += 1n;
      return undefined;
    }),
    "todo.id.step",
  ],
  "starts ids at 0": [
    override("POST", listPath, (_request, state) => {
      if (state.lastId === 0n && state.todos.size === 0) state.lastId = -1n;
      return undefined;
    }),
    "todo.id.first",
  ],
  "assigns one id to concurrent to-dos": [
    override("POST", listPath, async (request, state) => {
      const { lastId } = state;
      await Bun.sleep(1);
      const response = handleRequest(request, state);
      if (!response.ok) return response;
      state.lastId = lastId + 1n;
      return json(201, (await response.text()).replace(/"id":\d+/, `"id":${state.lastId}`));
    }),
    "todo.id.unique",
  ],
  "uses the id in the body": [
    override("POST", listPath, ({ body }, state) => {
      const [id, title] = [ownProperty(parseJson(body), "id"), parseTitle(body)];
      return typeof id === "bigint" && title !== undefined ? storeTodo(title, state, id) : undefined;
    }),
    "todo.id.assigned",
  ],
  "uses the done in the body": [
    withText("POST", listPath, (text, { body }) =>
      /"done":true/.test(body) ? text.replace("false", "true") : text,
    ),
    "todo.done.assigned",
  ],
  "uses an id for a rejected to-do": [
    after("POST", listPath, (state, _request, response) => {
      if (response.status === 422) state.lastId += 1n;
    }),
    "counter.only-stored",
  ],
  "stores a to-do that it rejects": [
    after("POST", listPath, (state, { body }, { status }) => {
      if (status === 422) storeTodo(parseTitle(body) ?? "", state);
    }),
    "create.invalid.not-stored",
  ],
  "responds to POST with 200": [withStatus("POST", listPath, { 201: 200 }), "create.201"],
  "adds a key to each to-do": [
    withText("*", anyTodoPath, (text) => text.replaceAll('"id":', '"links":[],"id":')),
    "todo.keys",
  ],
  "returns ids as strings": [
    withText("*", anyTodoPath, (text) => text.replace(/"id":(\d+)/g, '"id":"$1"')),
    "todo.id.type",
  ],
  "returns done as a number": [
    withText("GET", listPath, (text) => text.replace(/"done":\w+/g, '"done":0')),
    "todo.done.type",
  ],
  "sends JSON as text/html": [
    withResponse("*", anyTodoPath, (response) => withHeader(response, "content-type", "text/html")),
    "json.success",
  ],
  "sends errors as text": [
    withResponse("*", anyTodoPath, (response) =>
      response.ok ? response : withHeader(response, "content-type", "text/plain"),
    ),
    "json.errors",
  ],
  "collapses whitespace inside titles": [
    withRequestBody((body) => body.replace(/(\w) +(\w)/g, "$1 $2")),
    "create.title",
  ],
  "normalizes titles to NFC": [withRequestBody((body) => body.normalize("NFC")), "create.title"],
  "accepts a title of 121 characters": [
    overrideTitle((title) => title.length === 121 && title.trim() !== "", storeTodo),
    "title.long.422",
  ],
  "rejects a title of 120 characters": [
    overrideTitle(
      (title) => /^x{120}$/.test(title),
      () => problem(422),
    ),
    "title.120",
  ],
  "counts bytes instead of characters": [
    overrideTitle(
      (title) => title.length <= 120 && Buffer.byteLength(title) > 120,
      () => problem(422),
    ),
    "title.characters",
  ],
  "accepts a blank title": [
    overrideTitle((title) => /^\s{1,120}$/.test(title), storeTodo),
    "title.blank.422",
  ],
  "rejects whitespace around a title": [
    overrideTitle(
      (title) => !["", title].includes(title.trim()),
      () => problem(422),
    ),
    "title.padded",
  ],
  "sends no known message for two violations": [
    overrideTitle(
      (title) => title.trim() === "" && title.length > 120,
      () => problem(422, [{ field: "title", message: "is invalid" }]),
    ),
    "validation.together",
  ],
  "sends no known message": [
    withText("POST", listPath, (text) => text.replaceAll(/must [\w ]+/g, "is invalid")),
    "title.empty.message",
  ],
  "changes the wording of the second message": [
    withText("POST", listPath, (text) => text.replace("must be at most", "must not exceed")),
    "title.long.message",
  ],
  "truncates titles when it stores them": [
    after("POST", listPath, (state) => {
      changeTodo(state, state.lastId, ({ title }) => ({ title: title.slice(0, 100) }));
    }),
    "title.same",
  ],
  "truncates titles after 200 bytes": [
    withRequestBody((body) =>
      body.replace(/[^"]{110,120}(?="}$)/, (title) =>
        Buffer.byteLength(title) > 200 && !/^(.)\1*$/u.test(title)
          ? Buffer.from(title).subarray(0, 200).toString()
          : title,
      ),
    ),
    "create.title",
  ],
  "rejects a second to-do with the same title": [
    override("POST", listPath, ({ body }, { todos }) =>
      [...todos.values()].some(({ title }) => title === parseTitle(body)) ? problem(409) : undefined,
    ),
    "create.same-title",
  ],
  "returns the existing to-do with the same title": [
    override("POST", listPath, ({ body }, { todos }) => {
      const existing = [...todos.values()].find(({ title }) => title === parseTitle(body));
      return existing === undefined ? undefined : json(201, serialize(existing));
    }),
    "create.same-title",
  ],
  "lists only the first 250": [withList((elements) => elements.slice(0, 250)), "list.unlimited"],
  "lists only the latest 100": [withList((elements) => elements.slice(-100)), "list.unlimited"],
  "validates the body of a PATCH before the id": [
    override("PATCH", todoPath, ({ body }) =>
      typeof ownProperty(parseJson(body), "done") === "boolean" ? undefined : problem(422),
    ),
    "update.malformed.any-body",
  ],
  "responds to PATCH of a malformed id with 404": [
    withStatus("PATCH", todoPath, { 400: 404 }),
    "update.malformed.400",
  ],
  "responds to DELETE of a malformed id with 404": [
    withStatus("DELETE", todoPath, { 400: 404 }),
    "delete.malformed.400",
  ],
  "responds to an absent id with 400": [withStatus("*", todoPath, { 404: 400 }), "get.absent.404"],
  "responds to PATCH of an absent to-do with 200": [
    withResponse("PATCH", todoPath, (response) => (response.status === 404 ? json(200, "{}") : response)),
    "update.absent.404",
  ],
  "responds to DELETE of an absent to-do with 204": [
    withResponse("DELETE", todoPath, (response) =>
      response.status === 404 ? new Response(null, { status: 204 }) : response,
    ),
    "delete.absent.404",
  ],
  "deletes a to-do twice at the same time": [
    override("DELETE", todoPath, async (request, state) => {
      const todo = findTodo(request.path, state);
      await Bun.sleep(5);
      const response = handleRequest(request, state);
      return todo === undefined ? response : new Response(null, { status: 204 });
    }),
    "delete.once",
  ],
  "responds to DELETE with 200": [
    withResponse("DELETE", todoPath, (response) => (response.ok ? new Response(null) : response)),
    "delete.204",
  ],
  "responds to malformed JSON of a PATCH with 500": [
    override("PATCH", anyTodoPath, ({ body }) => (parseJson(body) === undefined ? problem(500) : undefined)),
    "body.update.4xx",
  ],
  "requires credentials for to-dos": [
    override("*", anyTodoPath, ({ authorization }) => (authorization === bearer ? undefined : problem(401))),
    "todos.open",
  ],
  "stores nothing": [
    after("POST", listPath, ({ todos }) => {
      todos.clear();
    }),
    "create.stored",
  ],
  "fails on POST": [override("POST", listPath, () => problem(500)), "create.201"],
  "fails on GET of the list": [override("GET", listPath, () => problem(500)), "list.200"],
  "fails on GET of a to-do": [override("GET", todoPath, () => problem(500)), "get.200"],
  "fails on PATCH": [override("PATCH", todoPath, () => problem(500)), "update.200"],
  "sends no challenge for unknown tokens": [
    after("*", whoamiPath, (_state, { authorization }, response) => {
      if (authorization !== "") response.headers.delete("www-authenticate");
    }),
    "bearer.unknown.challenge",
  ],
  "responds to a scheme without a token with 400": [
    override("*", whoamiPath, ({ authorization }) => (authorization === "Bearer" ? problem(400) : undefined)),
    "bearer.empty.401",
  ],
  "always reports both violations": [
    withResponse("POST", listPath, (response) =>
      response.status !== 422
        ? response
        : problem(422, [
            { field: "title", message: "must not be empty" },
            { field: "title", message: "must be at most 120 characters" },
          ]),
    ),
    "validation.only-failed",
  ],
  "omits the name of the field": [
    withText("POST", listPath, (text) => text.replaceAll('"field":"title",', "")),
    "validation.field",
  ],
  "rejects invalid titles with 400": [withStatus("POST", listPath, { 422: 400 }), "title.empty.422"],
  "stores the first element of an array": [
    withRequest((request) => ({
      ...request,
      body: /^\[\{"title"/.test(request.body) ? request.body.slice(1, -1) : request.body,
    })),
    "create.validates-first",
  ],
  "responds to malformed JSON with 500": [
    override("*", anyTodoPath, ({ method, body }) =>
      /POST|PATCH/.test(method) && parseJson(body) === undefined ? problem(500) : undefined,
    ),
    "body.create.4xx",
  ],
  "converts a number to a title": [
    withRequestBody((body) => body.replace(/^\{"title":(\d+)}$/, '{"title":"$1"}')),
    "newtodo.title.string",
  ],
  "stores a to-do without a title": [
    override("POST", listPath, ({ body }, state) =>
      body === "{}" ? storeTodo("untitled", state) : undefined,
    ),
    "newtodo.title.required",
  ],
  "sorts the list as text": [withList((elements) => elements.sort()), "list.order"],
  "returns null for an empty list": [
    withResponse("GET", listPath, (response, _request, state) =>
      state.todos.size > 0 ? response : json(200, "null"),
    ),
    "list.empty",
  ],
  "treats done=false as true": [
    withRequestBody((body) => body.replace('"done":false', '"done":true')),
    "update.to-false",
  ],
  "toggles done instead of setting it": [
    override("PATCH", todoPath, ({ path, body }, state) => {
      const todo = findTodo(path, state);
      if (todo === undefined || typeof ownProperty(parseJson(body), "done") !== "boolean") return undefined;
      const changed = { ...todo, done: !todo.done };
      state.todos.set(todo.id, changed);
      return json(200, serialize(changed));
    }),
    "update.to-true",
  ],
  "does not store the change": [
    override("PATCH", todoPath, (request, state) =>
      handleRequest(request, { ...state, todos: new Map(state.todos) }),
    ),
    "list.complete",
  ],
  "changes the title on PATCH": [
    after("PATCH", todoPath, (state, { path, body }) => {
      changeTodo(state, parseId(path), ({ title }) => ({ title: parseTitle(body) ?? title }));
    }),
    "patch.only-done",
  ],
  "accepts a string as boolean": [
    withRequestBody((body) => body.replace(/"done":"(true|false)"/, '"done":$1')),
    "patch.done.boolean",
  ],
  "treats a missing done as false": [
    withRequest((request) =>
      request.method === "PATCH" && request.body === "{}" ? { ...request, body: '{"done":false}' } : request,
    ),
    "patch.done.required",
  ],
  "responds to DELETE with a body": [
    withResponse("DELETE", todoPath, (response) => (response.ok ? json(200, '{"deleted":true}') : response)),
    "delete.empty",
  ],
  "keeps deleted to-dos": [
    override("DELETE", todoPath, (request, state) => {
      const { ok } = handleRequest({ ...request, method: "GET" }, state);
      return ok ? new Response(null, { status: 204 }) : undefined;
    }),
    "delete.removes",
  ],
  "does not delete to-dos that are done": [
    override("DELETE", todoPath, ({ path }, state) =>
      findTodo(path, state)?.done === true ? problem(409) : undefined,
    ),
    "delete.either-state",
  ],
  "stores a to-do again that is deleted during an update": [
    override("PATCH", todoPath, async (request, state) => {
      const response = handleRequest(request, state);
      const todo = findTodo(request.path, state);
      await Bun.sleep(2);
      if (todo !== undefined) state.todos.set(todo.id, todo);
      return response;
    }),
    "todos.concurrent",
  ],
  "creates an absent to-do on a PATCH that it rejects": [
    after("PATCH", todoPath, (state, { path }, { status }) => {
      const id = parseId(path);
      if (status === 404 && id > 0n) state.todos.set(id, { id, title: "new", done: false });
    }),
    "absent.unchanged",
  ],
  "responds to PATCH with the to-do before it": [
    override("PATCH", todoPath, (request, state) => {
      const response = handleRequest(request, state);
      const other = [...state.todos.values()].find(({ id }) => id === parseId(request.path) - 1n);
      return response.ok && other !== undefined ? json(200, serialize(other)) : response;
    }),
    "update.answer",
  ],
  "responds to GET with the to-do before it": [
    override("GET", todoPath, ({ path }, { todos }) => {
      const other = todos.get(parseId(path) - 1n);
      return todos.has(parseId(path)) && other !== undefined ? json(200, serialize(other)) : undefined;
    }),
    "get.answer",
  ],
  "responds to a malformed id with 404": [withStatus("*", todoPath, { 400: 404 }), "get.malformed.400"],
  "ignores text after an id": [
    withPath((path) => path.replace(/(todos\/\d+)\D.*$/, "$1")),
    "get.malformed.400",
  ],
  "rounds ids to doubles": [
    withRequest((request) => ({
      ...request,
      path: request.path.replace(/\d{17,}$/, (id) => String(BigInt(Number(id)))),
    })),
    "id.range",
  ],
  "accepts only ids of 63 bits": [
    override("*", todoPath, ({ path }) => (parseId(path) >= 2n ** 63n ? problem(400) : undefined)),
    "id.range",
  ],
  "reduces ids modulo 2^64": [
    withRequest((request) => ({
      ...request,
      path: request.path.replace(/\d+$/, (id) => String(BigInt.asUintN(64, BigInt(id)))),
    })),
    "id.out-of-range",
  ],
  "rejects credentials on to-do routes": [
    override("*", anyTodoPath, ({ authorization }) => (authorization === "" ? undefined : problem(401))),
    "todos.no-authentication",
  ],
  "also serves to-dos outside /api": [
    withPath((path) => path.replace(/^\/todos/, "/api/todos")),
    "api.prefix",
  ],
  "also serves to-dos under a version prefix": [
    withPath((path) => path.replace("/api/v1/", "/api/")),
    "api.no-version",
  ],
  "sends no challenge": [
    after("*", whoamiPath, (_state, _request, response) => {
      response.headers.delete("www-authenticate");
    }),
    "bearer.missing.challenge",
  ],
  "rejects tokens with 403": [withStatus("*", whoamiPath, { 401: 403 }), "bearer.missing.401"],
  "accepts any token": [
    withAuthorization(whoamiPath, (sent) => (/^Bearer ./.test(sent) ? bearer : sent)),
    "bearer.unknown.401",
  ],
  "accepts a token with a suffix": [
    withAuthorization(whoamiPath, (sent) => (sent.startsWith(bearer) ? bearer : sent)),
    "bearer.near-miss.401",
  ],
  "accepts a prefix of a token": [
    withAuthorization(whoamiPath, (sent) => (sent.length > 7 && bearer.startsWith(sent) ? bearer : sent)),
    "bearer.near-miss.401",
  ],
  "accepts a token with any scheme": [
    withAuthorization(whoamiPath, (sent) => sent.replace(/^\w+ /, "Bearer ")),
    "bearer.scheme.401",
  ],
  "returns the client's name without a token": [
    withResponse("*", whoamiPath, (response) => new Response(clientName, response)),
    "bearer.refused.no-name",
  ],
  "shares the Client between concurrent requests": [withSharedCredentials(whoamiPath), "client.request"],
  "returns the name of another client": [withText("*", whoamiPath, () => "someone"), "whoami.name"],
  "responds to whoami with JSON": [
    withResponse("*", whoamiPath, (response) =>
      response.ok ? json(200, `{"name":"${clientName}"}`) : response,
    ),
    "whoami.text",
  ],
  "guards only GET of whoami": [override("PUT", whoamiPath, () => json(200, "{}")), "bearer.router"],
  "guards only the path /admin/": [override("GET", /^\/admin\/.+/, () => json(200, "{}")), "basic.router"],
  "serves a variant of /admin/ without a guard": [
    override("GET", /^\/\/admin\/$/, () => new Response(`Hello, ${user.name}!`)),
    "basic.refused.no-greeting",
  ],
  "ignores the password": [
    withAuthorization(adminPath, (sent) => (parseBasic(sent)[0] === user.name ? basic : sent)),
    "basic.password.refused",
  ],
  "ignores the user": [
    withAuthorization(adminPath, (sent) => (parseBasic(sent)[1] === user.password ? basic : sent)),
    "basic.user.refused",
  ],
  "accepts Basic credentials with any scheme": [
    withAuthorization(adminPath, (sent) => sent.replace(/^\w+ /, "Basic ")),
    "basic.scheme.refused",
  ],
  "accepts any credentials": [
    withAuthorization(adminPath, (sent) => (sent === "" ? "" : basic)),
    "basic.malformed.refused",
  ],
  "accepts requests without credentials": [
    withAuthorization(adminPath, () => basic),
    "basic.missing.refused",
  ],
  "greets without a name": [withText("*", adminPath, () => "Hello!"), "admin.greeting"],
  "greets in JSON": [
    withResponse("*", adminPath, (response) =>
      response.ok ? json(200, `{"hello":"${user.name}"}`) : response,
    ),
    "admin.text",
  ],
  "shares the BasicUser between concurrent requests": [withSharedCredentials(adminPath), "basicuser.request"],
  "sends a Basic challenge without a realm": [
    withResponse("*", adminPath, (response) =>
      response.ok ? response : withHeader(response, "www-authenticate", "Basic"),
    ),
    "basic.realm",
  ],
  "responds to wrong passwords with 500": [
    withResponse("*", adminPath, (response, { authorization }) =>
      response.ok || authorization === "" ? response : problem(500),
    ),
    "basic.malformed.refused",
  ],
  "assigns descending ids": [
    overrideTitle(
      (title) => title.trim() !== "" && title.length <= 120,
      (title, state) =>
        storeTodo(title, state, state.lastId < 2n ? state.lastId * 999_999n + 1n : state.lastId - 1n),
    ),
    "todo.id.increasing",
  ],
  "lists titles as null": [
    withText("GET", listPath, (text) => text.replace(/"title":"([^"\\]|\\.)*"/g, '"title":null')),
    "todo.title.type",
  ],
  "responds to POST with only the id": [
    withText("POST", listPath, (text) => text.replace(/^(\{"id":\d+).*/, "$1}")),
    "create.answer",
  ],
  "creates to-dos that are done": [
    withText("POST", listPath, (text, _request, state) => {
      changeTodo(state, state.lastId, () => ({ done: true }));
      return text.replace('"done":false', '"done":true');
    }),
    "create.done",
  ],
  "wraps the list in an object": [withText("GET", listPath, (text) => `{"items":${text}}`), "list.array"],
  "responds to whoami with 203": [withStatus("*", whoamiPath, { 200: 203 }), "whoami.200"],
  "responds to admin with 203": [withStatus("*", adminPath, { 200: 203 }), "admin.200"],

  // Ids and stored to-dos
  "uses an id for each request": [
    after("*", anyTodoPath, (state, { method }) => {
      if (method !== "POST" && state.lastId > 0n) state.lastId += 1n;
    }),
    "counter.only-stored",
  ],
  "replaces the to-do whose id is in the body of a POST": [
    override("POST", listPath, ({ body }, state) => {
      const [id, title] = [ownProperty(parseJson(body), "id"), parseTitle(body)];
      if (typeof id !== "bigint" || !state.todos.has(id) || title === undefined) return undefined;
      changeTodo(state, id, () => ({ title }));
      return json(201, serialize({ id, title, done: false }));
    }),
    "todo.id.assigned",
  ],
  "stores a to-do under the id in the body, but returns another": [
    after("POST", listPath, (state, { body }, { ok }) => {
      const id = ownProperty(parseJson(body), "id");
      if (ok && typeof id === "bigint") state.todos.set(id, { id, title: "copy", done: false });
    }),
    "list.complete",
  ],
  "stores the done in the body, but returns false": [
    after("POST", listPath, (state, { body }) => {
      if (/"done":true/.test(body)) changeTodo(state, state.lastId, () => ({ done: true }));
    }),
    "list.complete",
  ],

  // Titles
  "trims titles in GET": [withText("GET", todoPath, trimTitles), "title.same"],
  "trims titles in the list": [withText("GET", listPath, trimTitles), "title.same"],
  "trims titles in the response to PATCH": [withText("PATCH", todoPath, trimTitles), "title.same"],
  "trims the stored title on PATCH": [
    after("PATCH", todoPath, (state, { path }) => {
      changeTodo(state, parseId(path), ({ title }) => ({ title: title.trim() }));
    }),
    "title.same",
  ],
  "does not decode escapes in JSON": [
    withRequestBody((body) => body.replace(/\\u(?=00e9)/g, "\\\\u")),
    "create.title",
  ],
  "normalizes titles that look like numbers": [
    withRequestBody((body) => body.replace(/"title":"0+([0-9]+)"/, '"title":"$1"')),
    "create.title",
  ],
  "escapes HTML in titles": [
    withRequestBody((body) => body.replaceAll("<", "&lt;").replaceAll(">", "&gt;")),
    "create.title",
  ],
  "accepts a title of Unicode whitespace": [
    overrideTitle((title) => /^[^\0-\x7f]\s*$/.test(title) && title.trim() === "", storeTodo),
    "title.blank.422",
  ],
  "accepts a blank title that is too long": [
    overrideTitle((title) => title.length > 120 && title.trim() === "", storeTodo),
    "title.blank.422",
  ],

  // Caches, and requests at the same time
  "caches a to-do until it is deleted": [withCache(todoPath, ["DELETE"]), "update.stored"],
  "caches a to-do until another is changed": [withCache(todoPath, ["PATCH"]), "delete.removes"],
  "caches the list until a POST or DELETE": [withCache(listPath, ["POST", "DELETE"]), "list.complete"],
  "caches that a to-do is absent": [withCache(todoPath, [], 404), "create.stored"],
  "hides to-dos that are done from the list": [
    withList((elements) => elements.filter((element) => element.includes('"done":false'))),
    "list.complete",
  ],
  "hides a to-do that is done from GET": [
    override("GET", todoPath, ({ path }, state) =>
      findTodo(path, state)?.done === true ? problem(404) : undefined,
    ),
    "update.stored",
  ],
  "loses concurrent POSTs": [withLostChanges("POST"), "todos.concurrent"],
  "loses concurrent PATCHes": [withLostChanges("PATCH"), "todos.concurrent"],
  "loses concurrent DELETEs": [withLostChanges("DELETE"), "todos.concurrent"],
  "mixes responses to concurrent POSTs": [withSharedResponse("POST", listPath), "todo.id.unique"],
  "mixes responses to concurrent PATCHes": [withSharedResponse("PATCH", todoPath), "todos.concurrent"],
  "mixes responses to concurrent GETs": [withSharedResponse("GET", todoPath), "todos.concurrent"],
  "returns 404 for a list that has become empty": [
    withResponse("GET", listPath, (response, _request, { todos, lastId }) =>
      todos.size === 0 && lastId > 0n ? problem(404) : response,
    ),
    "list.empty",
  ],

  // PATCH and DELETE
  "changes the to-do that the body names": [
    override("PATCH", todoPath, (request, state) => {
      const id = ownProperty(parseJson(request.body), "id");
      const exists = typeof id === "bigint" && state.todos.has(id);
      return exists ? handleRequest({ ...request, path: `/api/todos/${id}` }, state) : undefined;
    }),
    "patch.only-done",
  ],
  "returns the title in the body of a PATCH": [
    withText("PATCH", todoPath, (text, { body }) => {
      const title = parseTitle(body);
      return title === undefined ? text : text.replace(/"title":"[^"]*"/, `"title":${JSON.stringify(title)}`);
    }),
    "patch.only-done",
  ],
  "sets the title of a PATCH that it rejects": [
    after("PATCH", todoPath, (state, { path, body }, { ok }) => {
      if (!ok) changeTodo(state, parseId(path), ({ title }) => ({ title: parseTitle(body) ?? title }));
    }),
    "patch.only-done",
  ],
  "accepts a trailing comma in a PATCH": [
    withRequestBody((body) => body.replace(/^(\{"done":true),}$/, "$1}")),
    "body.update.4xx",
  ],
  "changes every to-do with the same title": [
    after("PATCH", todoPath, (state, { path }) => {
      const changed = findTodo(path, state);
      for (const { id, title } of state.todos.values())
        if (changed?.title === title) changeTodo(state, id, () => ({ done: changed.done }));
    }),
    "update.only-one",
  ],
  "deletes every to-do with the same title": [
    override("DELETE", todoPath, ({ path }, state) => {
      const deleted = findTodo(path, state);
      for (const { id, title } of state.todos.values())
        if (deleted?.title === title && id !== deleted.id) state.todos.delete(id);
      return undefined;
    }),
    "delete.only-one",
  ],

  // Ids in paths
  "accepts digits of other scripts in ids": [
    withPath((path) => path.replace("%D9%A1", "1")),
    "get.malformed.400",
  ],
  "fails on superscript digits in ids": [
    override("*", todoPath, ({ path }) => (path.endsWith("%C2%B2") ? problem(500) : undefined)),
    "get.malformed.400",
  ],
  "accepts a newline after an id": [withPath((path) => path.replace(/%0A$/, "")), "get.malformed.400"],
  "reduces ids modulo 2^32": [
    withPath((path) =>
      path.replace(/\d+$/, (id) => String(BigInt(id) < 2n ** 64n ? BigInt.asUintN(32, BigInt(id)) : id)),
    ),
    "id.range",
  ],

  // The bearer check
  "accepts a token with a word after it": [
    withAuthorization(whoamiPath, (sent) => sent.split(" ").slice(0, 2).join(" ")),
    "bearer.near-miss.401",
  ],
  "accepts a token as a Basic password": [
    withAuthorization(whoamiPath, (sent) => (parseBasic(sent)[1] === token ? bearer : sent)),
    "bearer.scheme.401",
  ],
  "accepts requests after a known token": [
    withHistory((sent, earlier) => (sent === "" && earlier.includes(bearer) ? bearer : sent)),
    "bearer.missing.401",
  ],
  "accepts a token once": [
    withHistory((sent, earlier) => (earlier.includes(sent) ? "" : sent)),
    "whoami.200",
  ],
  "accepts unknown tokens for other methods of whoami": [
    override("*", whoamiPath, ({ method, authorization }) =>
      method !== "GET" && authorization !== "" ? json(200, "{}") : undefined,
    ),
    "bearer.router",
  ],

  // The Basic check
  "accepts a password with a suffix": [
    withPassword((sent) => sent.startsWith(user.password)),
    "basic.password.refused",
  ],
  "compares passwords without case": [
    withPassword((sent) => sent.toLowerCase() === user.password.toLowerCase()),
    "basic.password.refused",
  ],
  "compares the first 72 bytes of passwords": [
    withPassword((sent) =>
      Buffer.from(sent).subarray(0, 72).equals(Buffer.from(user.password).subarray(0, 72)),
    ),
    "basic.password.refused",
  ],
  "compares passwords without accents": [
    withPassword((sent) => sent.replaceAll("é", "e") === user.password.replaceAll("é", "e")),
    "basic.password.refused",
  ],
  "trims passwords": [withPassword((sent) => sent.trim() === user.password), "basic.password.refused"],
  "compares passwords up to a NUL byte": [
    withPassword((sent) => sent.split("\0")[0] === user.password),
    "basic.password.refused",
  ],
  "compares the length of passwords": [
    withPassword((sent) => sent.length === user.password.length),
    "basic.password.refused",
  ],
  "accepts a prefix of the user": [
    withAuthorization(adminPath, (sent) => {
      const [name = "", password] = parseBasic(sent);
      return name !== "" && user.name.startsWith(name) && password === user.password ? basic : sent;
    }),
    "basic.user.refused",
  ],
  "rejects a password with a colon": [
    withAuthorization(adminPath, (sent) => (parseBasic(sent)[1]?.includes(":") ? "" : sent)),
    "admin.200",
  ],
  "decodes Basic credentials as ASCII": [
    withAuthorization(adminPath, (sent) => (/[^\0-\x7f]/.test(parseBasic(sent).join()) ? "" : sent)),
    "admin.200",
  ],
  "accepts wrong passwords for other methods of /admin/": [
    override("*", adminPath, ({ method, authorization }) =>
      method !== "GET" && authorization !== "" ? json(200, "{}") : undefined,
    ),
    "basic.router",
  ],
};

/** Changes the format of validation errors. */
function withErrors(serialize: (messages: string[]) => Response): Handler {
  return withResponse("POST", listPath, async (response) => {
    if (response.status !== 422) return response;
    return serialize((await response.text()).match(/must [\w ]+/g) ?? []);
  });
}

/** Correct servers that differ from the reference where the specification permits it. */
const PERMITTED_VARIANTS: Readonly<Record<string, Handler>> = {
  "reports only the first violation": withText("POST", listPath, (text) =>
    text.replace(/},\{"field".*?}/, "}"),
  ),
  "reports only the length of a long blank title": withText("POST", listPath, (text) =>
    text.replace(/\{"field":"title","message":"must not be empty"},/, ""),
  ),
  "trims titles": withRequestBody((body) =>
    body.replace(/^\{"title":"(\s|\\[nt])*(.*?\w.*?)(\s|\\[nt])*"}$/, '{"title":"$2"}'),
  ),
  "counts the length in UTF-16 code units": overrideTitle(
    (title) => title.length > 120 && [...title].length <= 120,
    () => problem(422),
  ),
  "lists messages under their field": withErrors((title) => json(422, JSON.stringify({ errors: { title } }))),
  "joins messages in one string": withErrors((messages) =>
    json(422, JSON.stringify({ error: `title ${messages.join(", ")}` })),
  ),
  "names the field with a JSON pointer": withErrors((messages) =>
    json(422, JSON.stringify(messages.map((detail) => ({ pointer: "#/title", detail })))),
  ),
  "sends other errors without a body": withResponse("*", anyTodoPath, (response) =>
    [400, 404].includes(response.status) ? new Response(null, { status: response.status }) : response,
  ),
  "rejects malformed bodies with 422": override("*", anyTodoPath, ({ body }) =>
    body !== "" && parseJson(body) === undefined ? problem(422) : undefined,
  ),
  "rejects unknown keys": override("*", anyTodoPath, ({ body }) =>
    /"(title|done)":[^,]*,"|"id":/.test(body) ? problem(422) : undefined,
  ),
  "rejects ids with leading zeros": override("*", todoPath, ({ path }) =>
    /todos\/0\d/.test(path) ? problem(400) : undefined,
  ),
  "rejects Basic credentials with 403": withResponse("*", adminPath, (response) =>
    response.ok ? response : new Response("Forbidden", { status: 403 }),
  ),
  "greets in HTML": withResponse("*", adminPath, (response) =>
    response.ok
      ? new Response(`<h1>Hello, ${user.name}</h1>`, { headers: { "content-type": "text/html" } })
      : response,
  ),
};

test("each rule that is not observable names a test that proves it", () => {
  const reasons = rules.flatMap(({ notObservable }) => notObservable ?? []);
  expect(reasons).not.toBeEmpty();
  for (const reason of reasons) expect(reason).toMatch(/^.+ — proved by \S+\.test\.ts ".+"$/);
});

test("each rule relies on rules that exist", () => {
  const ids = new Set(rules.map(({ id }) => id));
  expect([...reliesOn].flat(2).filter((id) => !ids.has(id))).toEqual([]);
});

test("each rule that the kit judges is violated by a faulty server", () => {
  const violated = new Set<string>(Object.values(FAULTS).map(([, id]) => id));
  const observable = rules.filter(({ notObservable }) => notObservable === undefined);
  expect(observable.map(({ id }) => id).filter((id) => !violated.has(id))).toEqual([]);
});

describe("checkServer", () => {
  test("accepts the reference server", async () => {
    const report = await check(handleRequest);
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(idsWithStatus(report, "skipped")).toEqual([]);
    expect(report).toMatchObject({ passed: true, complete: true });
  });

  test("leaves the to-dos of other clients unchanged while they write", async () => {
    const state: State = { todos: new Map([[7n, { id: 7n, title: "existing", done: true }]]), lastId: 9n };
    const otherIds = new Set([7n]);
    const withOtherClients: Handler = (request, state) => {
      if (request.method === "POST") storeTodo("concurrent", state);
      if (request.method === "POST") otherIds.add(state.lastId);
      return handleRequest(request, state);
    };
    const report = await check(withOtherClients, { ...ALL_OPTIONS, fresh: false }, state);
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(new Set(state.todos.keys())).toEqual(otherIds);
  });

  test("deletes its to-dos when it is stopped", async () => {
    const state: State = { todos: new Map([[7n, { id: 7n, title: "existing", done: true }]]), lastId: 9n };
    const stop = new AbortController();
    const stopsLate: Handler = (request, state) => {
      if (state.todos.size === 40) stop.abort();
      return handleRequest(request, state);
    };
    const options = { ...ALL_OPTIONS, fresh: false, signal: stop.signal };
    await expect(check(stopsLate, options, state)).rejects.toThrow(Stopped);
    expect([...state.todos.keys()]).toEqual([7n]);
  });

  test("sends fewer than ten wrong passwords for each user", async () => {
    const attempts = new Map<string, number>();
    const counts: Handler = (request, state) => {
      const response = handleRequest(request, state);
      const [name] =
        request.path.startsWith("/admin") && !response.ok ? parseBasic(request.authorization) : [];
      if (name !== undefined) attempts.set(name, (attempts.get(name) ?? 0) + 1);
      return response;
    };
    expect(idsWithStatus(await check(counts), "failed")).toEqual([]);
    expect(attempts.get(user.name)).toBeGreaterThan(5);
    expect([...attempts].filter(([, count]) => count >= 10)).toEqual([]);
  });

  test("waits when a server limits the rate", async () => {
    let requests = 0;
    const limits: Handler = (request, state) => {
      requests += 1;
      if (requests % 500 !== 0) return handleRequest(request, state);
      return new Response("{}", { status: 429, headers: { "retry-after": "0.01" } });
    };
    expect(idsWithStatus(await check(limits), "failed")).toEqual([]);
  });

  test("fails if a credential is missing, but not without --fresh", async () => {
    const { token, user, ...rest } = { ...ALL_OPTIONS, clientName: undefined };
    const { clientName: _, ...options } = rest;
    const [noFresh, noToken, noUser] = [
      await check(handleRequest, { ...options, token, user, fresh: false }),
      await check(handleRequest, { ...options, user }),
      await check(handleRequest, { ...options, token }),
    ];
    expect([noFresh, noToken, noUser].map(({ passed }) => passed)).toEqual([true, false, false]);
    expect(idsWithStatus(noFresh, "skipped")).toContain("todo.id.first");
    expect(idsWithStatus(noToken, "skipped")).toContain("whoami.200");
    expect(idsWithStatus(noUser, "skipped")).toContain("admin.200");
  });

  test.each(Object.entries(PERMITTED_VARIANTS))("accepts a server that %s", async (_, handler) => {
    expect(idsWithStatus(await check(handler), "failed")).toEqual([]);
  });

  test.each(Object.entries(FAULTS))("rejects a server that %s", async (_, [handler, expected]) => {
    // The model and the cases look at different routes, so one of them suffices.
    const isOfModel = rules.some(({ id, byModel }) => id === expected && byModel === true);
    expect(await (isOfModel ? violatedByModel(handler) : failedCases(handler))).toEqual([expected]);
  });

  test("names the failed rule for each rule that it does not judge", async () => {
    const [handler] = FAULTS["responds to POST with 200"] ?? [handleRequest];
    const { results, passed } = await check(handler);
    expect(passed).toBe(false);
    const notJudged = results.flatMap((result) => (result.status === "not judged" ? [result] : []));
    expect(notJudged.map(({ rule }) => rule.id)).toContain("list.complete");
    expect(notJudged.map(({ rule }) => rule.id)).not.toContain("whoami.200");
    expect(new Set(notJudged.map(({ reason }) => reason))).toEqual(
      new Set(["not judged because create.201 failed"]),
    );
  });

  test("reports a fault of the to-do routes and one of the protected routes together", async () => {
    const both: Handler = async (request, state) => {
      if (request.path === "/api/whoami") return problem(500);
      return withStatus("*", anyTodoPath, { 201: 200 })(request, state);
    };
    const failed = idsWithStatus(await check(both), "failed");
    expect(failed).toContain("create.201");
    expect(failed).toContain("whoami.200");
  });

  test("continues after a request that gets no response", async () => {
    const hangs = override("GET", todoPath, () => new Promise<never>(() => {}));
    const report = await check(hangs, { ...ALL_OPTIONS, timeoutMs: 200 });
    expect(idsWithStatus(report, "failed")).toEqual(["get.200"]);
    expect(idsWithStatus(report, "passed")).toContain("whoami.200");
  });
});

/** Faults that show only in special requests, each with the number of commands that show it. */
const MINIMAL: Readonly<Record<string, [Handler, number]>> = {
  "loses a soft hyphen": [withRequestBody((body) => body.replaceAll("\u00ad", "")), 1],
  "skips an id when creates run at once": [
    (() => {
      let running = 0;
      return override("POST", listPath, async (request, state) => {
        running += 1;
        await Bun.sleep(1);
        if (running > 1) state.lastId += 1n;
        running -= 1;
        return handleRequest(request, state);
      });
    })(),
    3,
  ],
  "lists only the first 100": [withList((elements) => elements.slice(0, 100)), 2],
  "shows a to-do only to its creator": [
    (() => {
      const owners = new Map<bigint, string>();
      return withResponse("*", anyTodoPath, async (response, request, state) => {
        if (request.method === "POST" && response.ok) owners.set(state.lastId, request.authorization);
        const owner = owners.get(parseId(request.path));
        return owner === undefined || owner === request.authorization ? response : problem(404);
      });
    })(),
    2,
  ],
};

test.each(Object.entries(MINIMAL))(
  "the commands for a server that %s show the fault",
  async (_, [handler, count]) => {
    await withServer(handler, emptyState(), async (baseUrl) => {
      const { results } = await checkServer({ baseUrl, ...ALL_OPTIONS });
      const commands = results.flatMap((result) => ("commands" in result ? (result.commands ?? []) : []));
      expect(commands).toHaveLength(count + 1);
      const env = {
        ...process.env,
        CONFORMANCE_TOKEN: token,
        CONFORMANCE_USER: `${user.name}:${user.password}`,
      };
      const bash = Bun.spawn(["bash", "-c", commands.join("\n")], { env, stdout: "pipe", stderr: "pipe" });
      const output = await bash.stdout.text();
      expect([await bash.exited, output]).toEqual([0, expect.stringContaining("HTTP/1.1 ")]);
    });
  },
);

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
  const run = async (...args: string[]) => {
    const env = { ...process.env, CONFORMANCE_TOKEN: undefined, CONFORMANCE_USER: undefined };
    const command = [process.execPath, "--no-env-file", `${import.meta.dir}/run.ts`, ...args];
    const child = Bun.spawn(command, { env, stdout: "pipe", stderr: "pipe" });
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    return { code: await child.exited, out, err };
  };

  test("prints every rule and sets the exit code", async () => {
    const credentials = ["--token", token, "--user", `${user.name}:${user.password}`];
    const [passed, failed] = await withServer(handleRequest, emptyState(), async (baseUrl) => [
      await run(baseUrl, ...credentials, "--client-name", clientName, "--fresh", "--seconds", "0"),
      await run(baseUrl, ...credentials, "--client-name", "someone else", "--seconds", "0"),
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
    [[], "missing required argument"],
    [["localhost:3000"], "the URL must be http or https"],
    [["http://localhost", "--user", "ann"], "NAME:PASSWORD"],
    [["http://localhost", "--token", ""], "the token must be"],
    [["http://localhost", "--seed", "x"], "at most nine digits"],
    [["http://localhost", "--tokn", "x"], "unknown option '--tokn'"],
  ])("rejects the arguments %p with one line and exit code 2", async (args, reason) => {
    const { code, out, err } = await run(...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(/^error: .+\n$/);
    expect(err).toContain(reason);
  });

  test("reports an unreachable server and exits with 1", async () => {
    const { code, err } = await run("http://127.0.0.1:1");
    expect(code).toBe(1);
    expect(err).toMatch(/^error: GET \/api\/todos: expected a response, got none: .+\n$/);
  });
});
