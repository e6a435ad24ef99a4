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
    const { violation } = await runModel(createClient({ baseUrl, ...ALL_OPTIONS }), ALL_OPTIONS);
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

/** Matches the method and the path of requests. */
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

/** Changes every request before it is handled. */
function withRequest(change: (request: ParsedRequest) => ParsedRequest): Handler {
  return (request, state) => handleRequest(change(request), state);
}

function withRequestBody(change: (body: string) => string): Handler {
  return withRequest((request) => ({ ...request, body: change(request.body) }));
}

/** Replaces a part of every body. */
const inBody = (pattern: RegExp | string, replacement: string): Handler =>
  withRequestBody((body) => body.replace(pattern, replacement));

/** Replaces a part of every path. */
const inPath = (pattern: RegExp | string, replacement: string): Handler =>
  withRequest((request) => ({ ...request, path: request.path.replace(pattern, replacement) }));

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

/** Responds to the requests of a route that match with an error. */
function reject(
  route: Route,
  status: number,
  when: (request: ParsedRequest, state: State) => boolean = () => true,
): Handler {
  return override(route, (request, state) => (when(request, state) ? problem(status) : undefined));
}

/** Changes the responses to requests of a route. */
function withResponse(
  route: Route,
  change: (response: Response, request: ParsedRequest, state: State) => Response | Promise<Response>,
): Handler {
  return override(route, (request, state) => change(handleRequest(request, state), request, state));
}

/** Handles POST requests whose title matches `when` by `handle`. */
function overrideTitle(
  when: (title: string) => boolean,
  handle: (title: string, state: State) => Response,
): Handler {
  return override(CREATE, ({ body }, state) => {
    const title = ownProperty(parseJson(body), "title");
    return typeof title === "string" && when(title) ? handle(title, state) : undefined;
  });
}

/** Rejects titles that match. */
const rejectTitle = (when: (title: string) => boolean): Handler => overrideTitle(when, () => problem(422));

/** Returns the id in a path, or 0, which no to-do has. */
function parseId(path: string): bigint {
  return BigInt(/^\/api\/todos\/(\d+)$/.exec(path)?.[1] ?? 0);
}

function findTodo(path: string, { todos }: State): Todo | undefined {
  return todos.get(parseId(path));
}

/** Changes the elements of the list. */
function withList(change: (elements: string[]) => string[]): Handler {
  return override(LIST, (_request, { todos }) => {
    const elements = [...todos.values()].map(serialize);
    return json(200, `[${change(elements).join()}]`);
  });
}

/** Changes the texts of the responses to requests of a route, except empty ones. */
function withText(
  route: Route,
  change: (text: string, request: ParsedRequest, state: State) => string,
): Handler {
  return withResponse(route, async (response, request, state) => {
    const text = await response.text();
    return new Response(text === "" ? null : change(text, request, state), response);
  });
}

/** Replaces a part of the responses to requests of a route. */
const inText = (route: Route, pattern: RegExp | string, replacement: string): Handler =>
  withText(route, (text) => text.replace(pattern, replacement));

/** Handles requests of a route by the reference server, and then changes its state or response. */
function after(
  route: Route,
  change: (state: State, request: ParsedRequest, response: Response) => void,
): Handler {
  return withResponse(route, (response, request, state) => {
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
function withLostChanges(route: Route): Handler {
  return override(route, async (request, state) => {
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

/** Sends all concurrent requests of a route the last of their responses. */
function withSharedResponse(route: Route): Handler {
  let shared = "";
  return override(route, async (request, state) => {
    const response = handleRequest(request, state);
    if (!response.ok) return response;
    shared = await response.text();
    await Bun.sleep(2);
    return json(response.status, shared);
  });
}

/** Replaces statuses of the responses to requests of a route. */
function withStatus(route: Route, statuses: Readonly<Record<number, number>>): Handler {
  return withResponse(route, async (response) => {
    const [text, { status, headers }] = [await response.text(), response];
    return new Response(text === "" ? null : text, { headers, status: statuses[status] ?? status });
  });
}

function withHeader(response: Response, name: string, value: string): Response {
  response.headers.set(name, value);
  return response;
}

/** Stores the credentials of all requests to a path in one variable and reads it after a delay. */
function withSharedCredentials(route: Route): Handler {
  let authorization = "";
  return override(route, async (request, state) => {
    authorization = request.authorization;
    await Bun.sleep(2);
    return handleRequest({ ...request, authorization }, state);
  });
}

function withAuthorization(route: Route, change: (authorization: string) => string): Handler {
  return withRequest((request) =>
    matches(route, request) ? { ...request, authorization: change(request.authorization) } : request,
  );
}

/** Accepts Authorization headers of a route that match. */
const accept = (route: Route, when: (authorization: string) => boolean): Handler =>
  withAuthorization(route, (sent) => (when(sent) ? validFor(route) : sent));

const validFor = (route: Route): string => (route === ADMIN ? basic : bearer);

const bearer = `Bearer ${token}`;
const basic = `Basic ${Buffer.from(`${user.name}:${user.password}`).toString("base64")}`;

/** Accepts requests of a route that name a user in a header for proxies. */
function withIdentity(route: Route): Handler {
  return withRequest((request) =>
    matches(route, request) && request.headers.has("x-remote-user")
      ? { ...request, authorization: validFor(route) }
      : request,
  );
}

/** Sets a cookie in the accepted responses of a route, and accepts requests with it. */
function withCookie(route: Route): Handler {
  return override(route, (request, state) => {
    const hasCookie = request.headers.get("cookie") === "session=known";
    const response = handleRequest(
      hasCookie ? { ...request, authorization: validFor(route) } : request,
      state,
    );
    return response.ok ? withHeader(response, "set-cookie", "session=known; Path=/") : response;
  });
}

/** Returns the user and the password of a Basic header, or nothing. */
function parseBasic(authorization: string): string[] {
  const [, encoded = ""] = /^Basic (.+)$/.exec(authorization) ?? [];
  return /^(.*?):(.*)$/s.exec(Buffer.from(encoded, "base64").toString())?.slice(1) ?? [];
}

/** Changes the credentials of requests to whoami, given those of all earlier requests. */
function withHistory(change: (authorization: string, earlier: readonly string[]) => string): Handler {
  const earlier: string[] = [];
  return withAuthorization(WHOAMI, (sent) => {
    const changed = change(sent, earlier);
    earlier.push(sent);
    return changed;
  });
}

/** Accepts the passwords of the user that match. */
function withPassword(matches: (password: string) => boolean): Handler {
  return withAuthorization(ADMIN, (sent) => {
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

/** Faulty servers by the one rule that must fail, and by what they do wrong. */
const FAULTS: Readonly<Record<`${RuleId}: ${string}`, Handler>> = {
  "todo.id.not-reused: reuses the id of a deleted to-do": after(DELETE, (state) => {
    state.lastId = [...state.todos.keys()].at(-1) ?? 0n;
  }),
  "todo.id.step: increments ids by two": override(CREATE, (_request, state) => {
    if (state.lastId > 0n) state.lastId += 1n;
    return undefined;
  }),
  "todo.id.first: starts ids at 0": override(CREATE, (_request, state) => {
    if (state.lastId === 0n && state.todos.size === 0) state.lastId = -1n;
    return undefined;
  }),
  "todo.id.assigned: uses the id in the body": override(CREATE, ({ body }, state) => {
    const [id, title] = [ownProperty(parseJson(body), "id"), parseTitle(body)];
    return typeof id === "bigint" && title !== undefined ? storeTodo(title, state, id) : undefined;
  }),
  "todo.done.assigned: uses the done in the body": withText(CREATE, (text, { body }) =>
    /"done":true/.test(body) ? text.replace("false", "true") : text,
  ),
  "counter.only-stored: uses an id for a rejected to-do": after(CREATE, (state, _request, response) => {
    if (response.status === 422) state.lastId += 1n;
  }),
  "create.invalid.not-stored: stores a to-do that it rejects": after(
    CREATE,
    (state, { body }, { status }) => {
      if (status === 422) storeTodo(parseTitle(body) ?? "", state);
    },
  ),
  "create.201: responds to POST with 200": withStatus(CREATE, { 201: 200 }),
  "todo.keys: adds a key to each to-do": inText(TODOS, /"id":/g, '"links":[],"id":'),
  "todo.id.type: returns ids as strings": inText(TODOS, /"id":(\d+)/g, '"id":"$1"'),
  "todo.done.type: returns done as a number": inText(LIST, /"done":\w+/g, '"done":0'),
  "json.success: sends JSON as text/html": withResponse(TODOS, (response) =>
    withHeader(response, "content-type", "text/html"),
  ),
  "json.errors: sends errors as text": withResponse(TODOS, (response) =>
    response.ok ? response : withHeader(response, "content-type", "text/plain"),
  ),
  "create.title: collapses whitespace inside titles": inBody(/(\w) +(\w)/g, "$1 $2"),
  "create.title: normalizes titles to NFC": withRequestBody((body) => body.normalize("NFC")),
  "title.long.422: accepts a title of 121 characters": overrideTitle(
    (title) => title.length === 121 && title.trim() !== "",
    storeTodo,
  ),
  "title.120: rejects a title of 120 characters": rejectTitle((title) => /^x{120}$/.test(title)),
  "title.characters: counts bytes instead of characters": rejectTitle(
    (title) => title.length <= 120 && Buffer.byteLength(title) > 120,
  ),
  "title.blank.422: accepts a blank title": overrideTitle((title) => /^\s{1,120}$/.test(title), storeTodo),
  "title.padded: rejects outer whitespace": rejectTitle((title) => !["", title].includes(title.trim())),
  "validation.together: sends no known message for two violations": overrideTitle(
    (title) => title.trim() === "" && title.length > 120,
    () => problem(422, [{ field: "title", message: "is invalid" }]),
  ),
  "title.empty.message: sends no known message": inText(CREATE, /must [\w ]+/g, "is invalid"),
  "title.long.message: changes its wording": inText(CREATE, "must be at most", "must not exceed"),
  "title.same: truncates titles when it stores them": after(CREATE, (state) => {
    changeTodo(state, state.lastId, ({ title }) => ({ title: title.slice(0, 100) }));
  }),
  "create.title: truncates titles after 200 bytes": withRequestBody((body) =>
    body.replace(/[^"]{110,120}(?="}$)/, (title) =>
      Buffer.byteLength(title) > 200 && !/^(.)\1*$/u.test(title)
        ? Buffer.from(title).subarray(0, 200).toString()
        : title,
    ),
  ),
  "create.same-title: rejects a second to-do with the same title": reject(
    CREATE,
    409,
    ({ body }, { todos }) => [...todos.values()].some(({ title }) => title === parseTitle(body)),
  ),
  "list.unlimited: lists only the first 250": withList((elements) => elements.slice(0, 250)),
  "list.unlimited: lists only the latest 100": withList((elements) => elements.slice(-100)),
  "update.malformed.any-body: validates the body of a PATCH before the id": override(UPDATE, ({ body }) =>
    typeof ownProperty(parseJson(body), "done") === "boolean" ? undefined : problem(422),
  ),
  "update.malformed.400: responds to PATCH with 404": withStatus(UPDATE, { 400: 404 }),
  "delete.malformed.400: responds to DELETE with 404": withStatus(DELETE, { 400: 404 }),
  "get.absent.404: responds to an absent id with 400": withStatus(TODO, { 404: 400 }),
  "update.absent.404: responds to PATCH of an absent to-do with 200": withResponse(UPDATE, (response) =>
    response.status === 404 ? json(200, "{}") : response,
  ),
  "delete.absent.404: responds to DELETE of an absent to-do with 204": withResponse(DELETE, (response) =>
    response.status === 404 ? new Response(null, { status: 204 }) : response,
  ),
  "delete.once: deletes a to-do twice at the same time": override(DELETE, async (request, state) => {
    const todo = findTodo(request.path, state);
    await Bun.sleep(5);
    const response = handleRequest(request, state);
    return todo === undefined ? response : new Response(null, { status: 204 });
  }),
  "delete.204: responds to DELETE with 200": withResponse(DELETE, (response) =>
    response.ok ? new Response(null) : response,
  ),
  "body.update.4xx: fails on malformed JSON": reject(
    UPDATE,
    500,
    ({ body }) => parseJson(body) === undefined,
  ),
  "todos.open: requires credentials for to-dos": override(TODOS, ({ authorization }) =>
    authorization === bearer ? undefined : problem(401),
  ),
  "create.stored: stores nothing": after(CREATE, ({ todos }) => {
    todos.clear();
  }),
  "list.200: fails on GET of the list": reject(LIST, 500),
  "get.200: fails on GET of a to-do": reject(READ, 500),
  "update.200: fails on PATCH": reject(UPDATE, 500),
  "bearer.unknown.challenge: sends no challenge for unknown tokens": after(
    WHOAMI,
    (_state, { authorization }, response) => {
      if (authorization !== "") response.headers.delete("www-authenticate");
    },
  ),
  "bearer.empty.401: responds with 400": reject(
    WHOAMI,
    400,
    ({ authorization }) => authorization === "Bearer",
  ),
  "validation.only-failed: always reports both violations": withResponse(CREATE, (response) =>
    response.status !== 422
      ? response
      : problem(422, [
          { field: "title", message: "must not be empty" },
          { field: "title", message: "must be at most 120 characters" },
        ]),
  ),
  "validation.field: omits the field": inText(CREATE, /"field":"title",/g, ""),
  "title.empty.422: rejects invalid titles with 400": withStatus(CREATE, { 422: 400 }),
  "create.validates-first: stores the first element of an array": withRequest((request) => ({
    ...request,
    body: /^\[\{"title"/.test(request.body) ? request.body.slice(1, -1) : request.body,
  })),
  "body.create.4xx: responds to malformed JSON with 500": reject(
    TODOS,
    500,
    ({ method, body }) => /POST|PATCH/.test(method) && parseJson(body) === undefined,
  ),
  "newtodo.title.string: converts a number to a title": inBody(/^\{"title":(\d+)}$/, '{"title":"$1"}'),
  "newtodo.title.required: stores a to-do without a title": override(CREATE, ({ body }, state) =>
    body === "{}" ? storeTodo("untitled", state) : undefined,
  ),
  "list.order: sorts the list as text": withList((elements) => elements.sort()),
  "list.empty: returns null for an empty list": withResponse(LIST, (response, _request, state) =>
    state.todos.size > 0 ? response : json(200, "null"),
  ),
  "update.to-false: treats done=false as true": inBody('"done":false', '"done":true'),
  "update.to-true: toggles done instead of setting it": override(UPDATE, ({ path, body }, state) => {
    const todo = findTodo(path, state);
    if (todo === undefined || typeof ownProperty(parseJson(body), "done") !== "boolean") return undefined;
    const changed = { ...todo, done: !todo.done };
    state.todos.set(todo.id, changed);
    return json(200, serialize(changed));
  }),
  "list.complete: does not store the change": override(UPDATE, (request, state) =>
    handleRequest(request, { ...state, todos: new Map(state.todos) }),
  ),
  "patch.only-done: changes the title on PATCH": after(UPDATE, (state, { path, body }) => {
    changeTodo(state, parseId(path), ({ title }) => ({ title: parseTitle(body) ?? title }));
  }),
  "patch.done.boolean: accepts a string as boolean": inBody(/"done":"(true|false)"/, '"done":$1'),
  "patch.done.required: treats a missing done as false": withRequest((request) =>
    request.method === "PATCH" && request.body === "{}" ? { ...request, body: '{"done":false}' } : request,
  ),
  "delete.empty: responds to DELETE with a body": withResponse(DELETE, (response) =>
    response.ok ? json(200, '{"deleted":true}') : response,
  ),
  "delete.removes: keeps deleted to-dos": override(DELETE, (request, state) => {
    const { ok } = handleRequest({ ...request, method: "GET" }, state);
    return ok ? new Response(null, { status: 204 }) : undefined;
  }),
  "delete.either-state: does not delete to-dos that are done": override(DELETE, ({ path }, state) =>
    findTodo(path, state)?.done === true ? problem(409) : undefined,
  ),
  "todos.concurrent: stores a to-do again that is deleted during an update": override(
    UPDATE,
    async (request, state) => {
      const response = handleRequest(request, state);
      const todo = findTodo(request.path, state);
      await Bun.sleep(2);
      if (todo !== undefined) state.todos.set(todo.id, todo);
      return response;
    },
  ),
  "absent.unchanged: creates an absent to-do on a PATCH that it rejects": after(
    UPDATE,
    (state, { path }, { status }) => {
      const id = parseId(path);
      if (status === 404 && id > 0n) state.todos.set(id, { id, title: "new", done: false });
    },
  ),
  "update.answer: responds to PATCH with the to-do before it": override(UPDATE, (request, state) => {
    const response = handleRequest(request, state);
    const other = [...state.todos.values()].find(({ id }) => id === parseId(request.path) - 1n);
    return response.ok && other !== undefined ? json(200, serialize(other)) : response;
  }),
  "get.answer: responds to GET with the to-do before it": override(READ, ({ path }, { todos }) => {
    const other = todos.get(parseId(path) - 1n);
    return todos.has(parseId(path)) && other !== undefined ? json(200, serialize(other)) : undefined;
  }),
  "get.malformed.400: responds to a malformed id with 404": withStatus(TODO, { 400: 404 }),
  "get.malformed.400: ignores text after an id": inPath(/(todos\/\d+)\D.*$/, "$1"),
  "id.range: rounds ids to doubles": withRequest((request) => ({
    ...request,
    path: request.path.replace(/\d{17,}$/, (id) => String(BigInt(Number(id)))),
  })),
  "id.range: accepts only ids of 63 bits": reject(TODO, 400, ({ path }) => parseId(path) >= 2n ** 63n),
  "id.out-of-range: reduces ids modulo 2^64": withRequest((request) => ({
    ...request,
    path: request.path.replace(/\d+$/, (id) => String(BigInt.asUintN(64, BigInt(id)))),
  })),
  "todos.no-authentication: rejects credentials on to-do routes": override(TODOS, ({ authorization }) =>
    authorization === "" ? undefined : problem(401),
  ),
  "api.prefix: also serves to-dos outside /api": inPath(/^\/todos/, "/api/todos"),
  "api.no-version: also serves to-dos under a version prefix": inPath("/api/v1/", "/api/"),
  "bearer.missing.challenge: sends no challenge": after(WHOAMI, (_state, _request, response) => {
    response.headers.delete("www-authenticate");
  }),
  "bearer.missing.401: rejects tokens with 403": withStatus(WHOAMI, { 401: 403 }),
  "bearer.unknown.401: accepts any token": accept(WHOAMI, (sent) => /^Bearer ./.test(sent)),
  "bearer.near-miss.401: accepts a token with a suffix": accept(WHOAMI, (sent) => sent.startsWith(bearer)),
  "bearer.near-miss.401: accepts a prefix": accept(
    WHOAMI,
    (sent) => sent.length > 7 && bearer.startsWith(sent),
  ),
  "bearer.scheme.401: accepts any scheme": withAuthorization(WHOAMI, (sent) =>
    sent.replace(/^\w+ /, "Bearer "),
  ),
  "bearer.refused.no-name: returns a name": withResponse(
    WHOAMI,
    (response) => new Response(clientName, response),
  ),
  "client.request: shares the Client between concurrent requests": withSharedCredentials(WHOAMI),
  "whoami.name: returns the name of another client": withText(WHOAMI, () => "someone"),
  "whoami.text: responds to whoami with JSON": withResponse(WHOAMI, (response) =>
    response.ok ? json(200, `{"name":"${clientName}"}`) : response,
  ),
  "bearer.router: guards only GET of whoami": override(/^PUT \/api\/whoami$/, () => json(200, "{}")),
  "basic.router: guards only the path /admin/": override(/^GET \/admin\/.+/, () => json(200, "{}")),
  "basic.refused.no-greeting: serves a variant of /admin/ without a guard": override(
    /^GET \/\/admin\/$/,
    () => new Response(`Hello, ${user.name}!`),
  ),
  "basic.password.refused: ignores it": accept(ADMIN, (sent) => parseBasic(sent)[0] === user.name),
  "basic.user.refused: ignores the user": accept(ADMIN, (sent) => parseBasic(sent)[1] === user.password),
  "basic.scheme.refused: accepts any scheme": withAuthorization(ADMIN, (sent) =>
    sent.replace(/^\w+ /, "Basic "),
  ),
  "basic.malformed.refused: accepts anything": withAuthorization(ADMIN, (sent) => (sent === "" ? "" : basic)),
  "basic.missing.refused: accepts requests without credentials": withAuthorization(ADMIN, () => basic),
  "admin.greeting: greets without a name": withText(ADMIN, () => "Hello!"),
  "admin.text: greets in JSON": withResponse(ADMIN, (response) =>
    response.ok ? json(200, `{"hello":"${user.name}"}`) : response,
  ),
  "basicuser.request: shares the BasicUser between concurrent requests": withSharedCredentials(ADMIN),
  "basic.realm: sends a Basic challenge without a realm": withResponse(ADMIN, (response) =>
    response.ok ? response : withHeader(response, "www-authenticate", "Basic"),
  ),
  "basic.malformed.refused: responds to wrong passwords with 500": withResponse(
    ADMIN,
    (response, { authorization }) => (response.ok || authorization === "" ? response : problem(500)),
  ),
  "list.query: routes by the path with its query": override(LIST, ({ search }) =>
    search === "" ? undefined : problem(404),
  ),
  "create.in-parts: decodes each part of a body alone": withRequest((request) => ({
    ...request,
    body: request.parts.map((part) => Buffer.from(part).toString()).join(""),
  })),
  "json.negotiated: shows the list as HTML to browsers": override(LIST, ({ headers }) =>
    /text\/html/.test(headers.get("accept") ?? "") ? new Response("<ul></ul>") : undefined,
  ),
  "basic.malformed.refused: accepts very long passwords": accept(ADMIN, (sent) => sent.length > 1000),
  "get.not-modified: takes every conditional GET for unchanged": override(/^GET/, ({ headers }) =>
    headers.has("if-none-match") ? new Response(null, { status: 304 }) : undefined,
  ),
  "delete.only-one: deletes every to-do whose id starts with the id": after(DELETE, ({ todos }, { path }) => {
    for (const id of todos.keys()) if (`/api/todos/${id}`.startsWith(path)) todos.delete(id);
  }),
  "todo.id.increasing: assigns descending ids": overrideTitle(
    (title) => title.trim() !== "" && title.length <= 120,
    (title, state) =>
      storeTodo(title, state, state.lastId < 2n ? state.lastId * 999_999n + 1n : state.lastId - 1n),
  ),
  "todo.title.type: lists titles as null": inText(LIST, /"title":"([^"\\]|\\.)*"/g, '"title":null'),
  "create.answer: responds to POST with only the id": inText(CREATE, /^(\{"id":\d+).*/, "$1}"),
  "create.done: creates to-dos that are done": withText(CREATE, (text, _request, state) => {
    changeTodo(state, state.lastId, () => ({ done: true }));
    return text.replace('"done":false', '"done":true');
  }),
  "list.array: wraps the list in an object": withText(LIST, (text) => `{"items":${text}}`),
  "whoami.200: responds to whoami with 203": withStatus(WHOAMI, { 200: 203 }),
  "admin.200: responds to admin with 203": withStatus(ADMIN, { 200: 203 }),

  // Ids and stored to-dos
  "counter.only-stored: uses an id for each request": after(TODOS, (state, { method }) => {
    if (method !== "POST" && state.lastId > 0n) state.lastId += 1n;
  }),
  "list.complete: stores the done in the body, but returns false": after(CREATE, (state, { body }) => {
    if (/"done":true/.test(body)) changeTodo(state, state.lastId, () => ({ done: true }));
  }),

  // Titles
  "title.same: trims titles in GET": withText(READ, trimTitles),
  "title.same: trims titles in the list": withText(LIST, trimTitles),
  "title.same: trims titles in the response to PATCH": withText(UPDATE, trimTitles),
  "title.same: trims the stored title on PATCH": after(UPDATE, (state, { path }) => {
    changeTodo(state, parseId(path), ({ title }) => ({ title: title.trim() }));
  }),
  "create.title: does not decode escapes in JSON": inBody(/\\u(?=00e9)/g, "\\\\u"),
  "create.title: normalizes titles that look like numbers": inBody(/"title":"0+([0-9]+)"/, '"title":"$1"'),
  "create.title: escapes HTML in titles": withRequestBody((body) =>
    body.replaceAll("<", "&lt;").replaceAll(">", "&gt;"),
  ),
  "create.title: replaces patterns in titles": overrideTitle(
    (title) => title.trim() !== "" && title.length <= 120,
    (title, state) => storeTodo("%s".replace("%s", title), state),
  ),
  "create.title: reads YAML in titles": inBody(/"title":"no"/i, '"title":"false"'),
  "create.201: treats titles as equal without case": override(CREATE, ({ body }, { todos }) => {
    const title = parseTitle(body)?.toLowerCase();
    const others = [...todos.values()].filter((todo) => todo.title !== parseTitle(body));
    return others.some((todo) => todo.title.toLowerCase() === title) ? problem(409) : undefined;
  }),
  "todo.id.increasing: restores a deleted to-do with the same title": (() => {
    const deleted = new Map<string, bigint>();
    return override(TODOS, (request, state) => {
      const todo = findTodo(request.path, state);
      if (request.method === "DELETE" && todo !== undefined) deleted.set(todo.title, todo.id);
      const [title = "", { method }] = [parseTitle(request.body), request];
      const id = method === "POST" ? deleted.get(title) : undefined;
      return id === undefined || state.todos.has(id) ? undefined : storeTodo(title, state, id);
    });
  })(),
  "title.blank.422: accepts a blank title that is too long": overrideTitle(
    (title) => title.length > 120 && title.trim() === "",
    storeTodo,
  ),

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
  "todos.concurrent: lists a to-do as null while it is deleted": override(
    LIST,
    async (_request, { todos }) => {
      const ids = [...todos.keys()];
      await Bun.sleep(2);
      const elements = ids.map((id) => todos.get(id));
      return json(200, `[${elements.map((todo) => (todo === undefined ? "null" : serialize(todo)))}]`);
    },
  ),
  "todos.concurrent: changes done while it deletes a to-do": override(DELETE, async ({ path }, state) => {
    changeTodo(state, parseId(path), ({ done }) => ({ done: !done }));
    await Bun.sleep(2);
    return undefined;
  }),
  "list.empty: returns 404 for a list that has become empty": withResponse(
    LIST,
    (response, _request, { todos, lastId }) => (todos.size === 0 && lastId > 0n ? problem(404) : response),
  ),

  // PATCH and DELETE
  "patch.only-done: changes the to-do that the body names": override(UPDATE, (request, state) => {
    const id = ownProperty(parseJson(request.body), "id");
    const exists = typeof id === "bigint" && state.todos.has(id);
    return exists ? handleRequest({ ...request, path: `/api/todos/${id}` }, state) : undefined;
  }),
  "patch.only-done: returns the title in the body of a PATCH": withText(UPDATE, (text, { body }) => {
    const title = parseTitle(body);
    return title === undefined ? text : text.replace(/"title":"[^"]*"/, `"title":${JSON.stringify(title)}`);
  }),
  "body.update.4xx: accepts a trailing comma in a PATCH": inBody(/^(\{"done":true),}$/, "$1}"),
  "update.only-one: changes every to-do with the same title": after(UPDATE, (state, { path }) => {
    const changed = findTodo(path, state);
    for (const { id, title } of state.todos.values())
      if (changed?.title === title) changeTodo(state, id, () => ({ done: changed.done }));
  }),
  "delete.only-one: deletes every to-do with the same title": override(DELETE, ({ path }, state) => {
    const deleted = findTodo(path, state);
    for (const { id, title } of state.todos.values())
      if (deleted?.title === title && id !== deleted.id) state.todos.delete(id);
    return undefined;
  }),

  // Ids in paths
  "get.malformed.400: accepts digits of other scripts in ids": inPath("%D9%A1", "1"),
  "get.answer: reads an id with a leading zero as octal": withRequest((request) => ({
    ...request,
    path: request.path.replace(/(?<=todos\/)0[0-7]+$/, (id) => String(Number.parseInt(id, 8))),
  })),
  "get.malformed.400: accepts -0 as an id": inPath(/-0$/, "0"),
  "get.malformed.400: fails on superscript digits": reject(TODO, 500, ({ path }) => path.endsWith("%C2%B2")),
  "get.malformed.400: accepts a newline after an id": inPath(/%0A$/, ""),
  "id.range: reduces ids modulo 2^32": withRequest((request) => ({
    ...request,
    path: request.path.replace(/\d+$/, (id) =>
      String(BigInt(id) < 2n ** 64n ? BigInt.asUintN(32, BigInt(id)) : id),
    ),
  })),

  // The bearer check
  "bearer.near-miss.401: accepts a token with a word after it": withAuthorization(WHOAMI, (sent) =>
    sent.split(" ").slice(0, 2).join(" "),
  ),
  "bearer.scheme.401: finds a token anywhere in the header": accept(WHOAMI, (sent) => sent.endsWith(bearer)),
  "bearer.scheme.401: accepts it as a password": accept(WHOAMI, (sent) => parseBasic(sent)[1] === token),
  "bearer.near-miss.401: decodes tokens from Base64": accept(
    WHOAMI,
    (sent) => Buffer.from(sent.slice(7), "base64").toString() === token,
  ),
  "bearer.near-miss.401: removes spaces in tokens": accept(
    WHOAMI,
    (sent) => sent.startsWith("Bearer ") && sent.replaceAll(" ", "") === bearer.replace(" ", ""),
  ),
  "bearer.near-miss.401: compares only letters and digits": accept(
    WHOAMI,
    (sent) => sent.startsWith("Bearer ") && sent.replace(/\W/g, "") === bearer.replace(/\W/g, ""),
  ),
  "bearer.missing.401: trusts the name in a header": withIdentity(WHOAMI),
  "bearer.missing.401: accepts its cookie instead of a token": withCookie(WHOAMI),
  "bearer.missing.401: accepts requests after a known token": withHistory((sent, earlier) =>
    sent === "" && earlier.includes(bearer) ? bearer : sent,
  ),
  "whoami.200: accepts a token once": withHistory((sent, earlier) => (earlier.includes(sent) ? "" : sent)),
  "bearer.router: accepts unknown tokens for other methods of whoami": override(
    WHOAMI,
    ({ method, authorization }) => (method !== "GET" && authorization !== "" ? json(200, "{}") : undefined),
  ),

  // The Basic check
  "basic.password.refused: accepts just the user": accept(
    ADMIN,
    (sent) => sent === `Basic ${btoa(user.name)}`,
  ),
  "basic.scheme.refused: accepts the token as a password": accept(
    ADMIN,
    (sent) => parseBasic(sent)[1] === token,
  ),
  "basic.missing.refused: trusts the name in a header": withIdentity(ADMIN),
  "basic.missing.refused: accepts its cookie instead of credentials": withCookie(ADMIN),
  "basic.user.refused: puts the user in a query": accept(ADMIN, (sent) =>
    /'--$/.test(parseBasic(sent)[0] ?? ""),
  ),
  "basic.password.refused: accepts a longer password": withPassword((sent) => sent.startsWith(user.password)),
  "basic.password.refused: ignores case": withPassword(
    (sent) => sent.toLowerCase() === user.password.toLowerCase(),
  ),
  "basic.password.refused: compares passwords without accents": withPassword(
    (sent) => sent.replaceAll("é", "e") === user.password.replaceAll("é", "e"),
  ),
  "basic.password.refused: reads up to a NUL byte": withPassword(
    (sent) => sent.split("\0")[0] === user.password,
  ),
  "basic.password.refused: compares lengths": withPassword((sent) => sent.length === user.password.length),
  "basic.user.refused: accepts a prefix of the user": withAuthorization(ADMIN, (sent) => {
    const [name = "", password] = parseBasic(sent);
    return name !== "" && user.name.startsWith(name) && password === user.password ? basic : sent;
  }),
  "admin.200: rejects a password with a colon": withAuthorization(ADMIN, (sent) =>
    parseBasic(sent)[1]?.includes(":") ? "" : sent,
  ),
  "admin.200: decodes Basic credentials as ASCII": withAuthorization(ADMIN, (sent) =>
    /[^\0-\x7f]/.test(parseBasic(sent).join()) ? "" : sent,
  ),
  "basic.router: accepts wrong passwords for other methods of /admin/": override(
    ADMIN,
    ({ method, authorization }) => (method !== "GET" && authorization !== "" ? json(200, "{}") : undefined),
  ),
};

/** Changes the format of validation errors. */
function withErrors(serialize: (messages: string[]) => Response): Handler {
  return withResponse(CREATE, async (response) => {
    if (response.status !== 422) return response;
    return serialize((await response.text()).match(/must [\w ]+/g) ?? []);
  });
}

/** Correct servers that differ from the reference where the specification permits it. */
const PERMITTED_VARIANTS: Readonly<Record<string, Handler>> = {
  "limits bodies to 1 KiB": reject(TODOS, 413, ({ body }) => Buffer.byteLength(body) > 1024),
  "reports only the first violation": inText(CREATE, /},\{"field".*?}/, "}"),
  "reports only the length": inText(CREATE, /\{"field":"title","message":"must not be empty"},/, ""),
  "trims titles": inBody(/^\{"title":"(\s|\\[nt])*(.*?\w.*?)(\s|\\[nt])*"}$/, '{"title":"$2"}'),
  "counts UTF-16 code units": rejectTitle((title) => title.length > 120 && [...title].length <= 120),
  "lists messages under their field": withErrors((title) => json(422, JSON.stringify({ errors: { title } }))),
  "joins messages in one string": withErrors((messages) =>
    json(422, JSON.stringify({ error: `title ${messages.join(", ")}` })),
  ),
  "names the field with a JSON pointer": withErrors((messages) =>
    json(422, JSON.stringify(messages.map((detail) => ({ pointer: "#/title", detail })))),
  ),
  "sends other errors without a body": withResponse(TODOS, (response) =>
    [400, 404].includes(response.status) ? new Response(null, { status: response.status }) : response,
  ),
  "rejects malformed bodies with 422": reject(
    TODOS,
    422,
    ({ body }) => body !== "" && parseJson(body) === undefined,
  ),
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
  "rejects ids with leading zeros": reject(TODO, 400, ({ path }) => /todos\/0\d/.test(path)),
  "rejects Basic credentials with 403": withResponse(ADMIN, (response) =>
    response.ok ? response : new Response("Forbidden", { status: 403 }),
  ),
  "greets in HTML": withResponse(ADMIN, (response) =>
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
  const violated = new Set(Object.keys(FAULTS).map((fault) => fault.split(": ")[0]));
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

  test.each(Object.entries(FAULTS))("rejects a faulty server: %s", async (fault, handler) => {
    const [expected = ""] = fault.split(": ");
    // The model and the cases look at different routes, so one of them suffices.
    const isOfModel = rules.some(({ id, byModel }) => id === expected && byModel === true);
    expect(await (isOfModel ? violatedByModel(handler) : failedCases(handler))).toEqual([expected]);
  });

  test("names the failed rule for each rule that it does not judge", async () => {
    const { results, passed } = await check(withStatus(CREATE, { 201: 200 }));
    expect(passed).toBe(false);
    const notJudged = results.flatMap((result) => (result.status === "not judged" ? [result] : []));
    expect(notJudged.map(({ rule }) => rule.id)).toContain("list.complete");
    expect(notJudged.map(({ rule }) => rule.id)).not.toContain("whoami.200");
    expect(new Set(notJudged.map(({ reason }) => reason))).toEqual(
      new Set(["not judged because create.201 failed"]),
    );
  });

  test("shows no token in its report, even if a path contains it", async () => {
    const servesPath = override(/^GET \/api\/whoami\/Reference/, () => new Response(clientName));
    const report = JSON.stringify(await check(servesPath));
    expect(report).toMatch(/GET \/api\/whoami\/SECRET(?: with [^"]*)?: expected no 2xx status/);
    expect(report).not.toContain(token);
  });

  test("reports a fault of the to-do routes and one of the protected routes together", async () => {
    const both: Handler = async (request, state) => {
      if (request.path === "/api/whoami") return problem(500);
      return withStatus(TODOS, { 201: 200 })(request, state);
    };
    const failed = idsWithStatus(await check(both), "failed");
    expect(failed).toContain("create.201");
    expect(failed).toContain("whoami.200");
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
  "loses a soft hyphen": [withRequestBody((body) => body.replaceAll("\u00ad", "")), 1],
  "skips an id when creates run at once": [
    (() => {
      let running = 0;
      return override(CREATE, async (request, state) => {
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
      return withResponse(TODOS, async (response, request, state) => {
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
      // A race may show in another place, with fewer requests.
      expect(commands.length).toBeGreaterThan(1);
      expect(commands.length).toBeLessThanOrEqual(count + 1);
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
