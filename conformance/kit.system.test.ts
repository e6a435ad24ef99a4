/** Tests of the kit: it accepts the reference server and rejects each faulty server by the rules that the fault violates. */
import { describe, expect, test } from "bun:test";
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
import type { RuleId } from "./rules.ts";
import {
  checkServer,
  dependencies,
  type Options,
  type Report,
  rules,
  suiteErrors,
  suites,
} from "./runner.ts";
import { ownProperty, parseJson } from "./target-client.ts";

const ALL_OPTIONS = { token, user, clientName, fresh: true };

function check(
  handler: Handler,
  options: Omit<Options, "baseUrl"> = ALL_OPTIONS,
  state = emptyState(),
): Promise<Report> {
  return withServer(handler, state, (baseUrl) => checkServer({ baseUrl, ...options }));
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

/** Returns the to-do that a path names. */
function findTodo(path: string, { todos }: State): Todo | undefined {
  const id = /^\/api\/todos\/(\d+)$/.exec(path)?.[1];
  return id === undefined ? undefined : todos.get(BigInt(id));
}

/** Changes the elements of the list. */
function withList(change: (elements: string[]) => string[]): Handler {
  return override("GET", listPath, (_request, { todos }) => {
    const elements = [...todos.values()].map(serialize);
    return json(200, `[${change(elements).join()}]`);
  });
}

/** Changes the body of a response and keeps its status and headers. */
async function withBody(response: Response, change: (text: string) => string): Promise<Response> {
  const text = await response.text();
  return new Response(text === "" ? null : change(text), response);
}

async function withStatus(response: Response, status: number): Promise<Response> {
  const text = await response.text();
  return new Response(text === "" ? null : text, { status, headers: response.headers });
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
const basic = `Basic ${btoa(`${user.name}:${user.password}`)}`;

function parseBasic(authorization: string): string[] {
  return authorization.startsWith("Basic ")
    ? Buffer.from(authorization.slice(6), "base64").toString().split(":")
    : [];
}

/** Faulty servers, each with the one rule that must fail. */
const FAULTS: Readonly<Record<string, [Handler, RuleId]>> = {
  "reuses the id of a deleted to-do": [
    withResponse("DELETE", todoPath, (response, _request, state) => {
      state.lastId = [...state.todos.keys()].at(-1) ?? 0n;
      return response;
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
      if (response.ok) state.lastId = lastId + 1n;
      return withBody(response, (text) => text.replace(/"id":\d+/, `"id":${lastId + 1n}`));
    }),
    "todo.id.unique",
  ],
  "uses the id in the body": [
    override("POST", listPath, ({ body }, state) => {
      const [id, title] = [ownProperty(parseJson(body), "id"), ownProperty(parseJson(body), "title")];
      return typeof id === "bigint" && typeof title === "string" ? storeTodo(title, state, id) : undefined;
    }),
    "todo.id.assigned",
  ],
  "uses the done in the body": [
    withResponse("POST", listPath, (response, { body }) =>
      withBody(response, (text) => (/"done":true/.test(body) ? text.replace("false", "true") : text)),
    ),
    "todo.done.assigned",
  ],
  "uses an id for a rejected to-do": [
    withResponse("POST", listPath, (response, _request, state) => {
      if (response.status === 422) state.lastId += 1n;
      return response;
    }),
    "create.invalid.counter",
  ],
  "stores a to-do that it rejects": [
    override("POST", listPath, (request, state) => {
      const response = handleRequest(request, state);
      const title = ownProperty(parseJson(request.body), "title");
      if (response.status === 422 && typeof title === "string") storeTodo(title, state);
      return response;
    }),
    "create.invalid.not-stored",
  ],
  "uses an id for a malformed body": [
    withResponse("POST", listPath, (response, _request, state) => {
      if (response.status === 400) state.lastId += 1n;
      return response;
    }),
    "counter.only-stored",
  ],
  "responds to POST with 200": [
    withResponse("POST", listPath, (response) =>
      response.status === 201 ? withStatus(response, 200) : response,
    ),
    "create.201",
  ],
  "adds a key to each to-do": [
    withResponse("*", anyTodoPath, (response) =>
      withBody(response, (text) => text.replaceAll('"id":', '"links":[],"id":')),
    ),
    "todo.keys",
  ],
  "returns ids as strings": [
    withResponse("GET", anyTodoPath, (response) =>
      withBody(response, (text) => text.replace(/"id":(\d+)/g, '"id":"$1"')),
    ),
    "todo.id.type",
  ],
  "returns done as a number": [
    withResponse("GET", listPath, (response) =>
      withBody(response, (text) => text.replace(/"done":\w+/g, '"done":0')),
    ),
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
    withRequest((request) => ({ ...request, body: request.body.replace(/(\w) +(\w)/g, "$1 $2") })),
    "create.title",
  ],
  "normalizes titles to NFC": [
    withRequest((request) => ({ ...request, body: request.body.normalize("NFC") })),
    "create.title",
  ],
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
    withResponse("POST", listPath, (response) =>
      withBody(response, (text) => text.replaceAll(/must [\w ]+/g, "is invalid")),
    ),
    "title.empty.message",
  ],
  "changes the wording of the second message": [
    withResponse("POST", listPath, (response) =>
      withBody(response, (text) => text.replace("must be at most", "must not exceed")),
    ),
    "title.long.message",
  ],
  "truncates titles when it stores them": [
    withResponse("POST", listPath, (response, _request, state) => {
      const newest = state.todos.get(state.lastId);
      if (response.ok && newest !== undefined)
        state.todos.set(newest.id, { ...newest, title: newest.title.slice(0, 100) });
      return response;
    }),
    "create.title.whole",
  ],
  "truncates titles after 200 bytes": [
    withRequest((request) => ({
      ...request,
      body: request.body.replace(/[^"]{110,120}(?="}$)/, (title) =>
        Buffer.byteLength(title) > 200 && !/^(.)\1*$/u.test(title)
          ? Buffer.from(title).subarray(0, 200).toString()
          : title,
      ),
    })),
    "create.title.whole",
  ],
  "rejects a second to-do with the same title": [
    override("POST", listPath, ({ body }, { todos }) => {
      const title = ownProperty(parseJson(body), "title");
      return [...todos.values()].some((todo) => todo.title === title) ? problem(409) : undefined;
    }),
    "create.same-title",
  ],
  "returns the existing to-do with the same title": [
    override("POST", listPath, ({ body }, { todos }) => {
      const title = ownProperty(parseJson(body), "title");
      const existing = [...todos.values()].find((todo) => todo.title === title);
      return existing === undefined ? undefined : json(201, serialize(existing));
    }),
    "create.same-title",
  ],
  "lists only the first 100": [withList((elements) => elements.slice(0, 100)), "list.unlimited"],
  "lists only the latest 100": [withList((elements) => elements.slice(-100)), "list.unlimited"],
  "lists to-dos without later changes": [
    withList((elements) => elements.map((element) => element.replace('"done":true', '"done":false'))),
    "list.complete",
  ],
  "validates the body of a PATCH before the id": [
    override("PATCH", todoPath, ({ body }) =>
      typeof ownProperty(parseJson(body), "done") === "boolean" ? undefined : problem(422),
    ),
    "update.malformed.any-body",
  ],
  "responds to a malformed id with 422": [
    withResponse("*", todoPath, (response, { path }) =>
      response.status === 400 && !/^\d+$/.test(path.slice(11)) ? problem(422) : response,
    ),
    "get.malformed.400",
  ],
  "responds to PATCH of a malformed id with 404": [
    withResponse("PATCH", todoPath, (response, { path }) =>
      response.status === 400 && !/^\d+$/.test(path.slice(11)) ? problem(404) : response,
    ),
    "update.malformed.400",
  ],
  "responds to DELETE of a malformed id with 404": [
    withResponse("DELETE", todoPath, (response, { path }) =>
      response.status === 400 && !/^\d+$/.test(path.slice(11)) ? problem(404) : response,
    ),
    "delete.malformed.400",
  ],
  "responds to an absent id with 400": [
    withResponse("*", todoPath, (response) => (response.status === 404 ? problem(400) : response)),
    "id.distinct-status",
  ],
  "responds to an absent id with 410": [
    withResponse("*", todoPath, (response) => (response.status === 404 ? problem(410) : response)),
    "get.absent.404",
  ],
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
      await Bun.sleep(20);
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
  "returns every id as a string": [
    withResponse("*", anyTodoPath, (response) =>
      withBody(response, (text) => text.replace(/"id":(\d+)/g, '"id":"$1"')),
    ),
    "todo.id.type",
  ],
  "returns the wrong title from GET": [
    withResponse("GET", todoPath, (response) =>
      withBody(response, (text) => text.replace(/"title":"[^"]*/, '"title":"untitled')),
    ),
    "get.answer",
  ],
  "requires credentials for to-dos": [
    override("*", anyTodoPath, ({ authorization }) => (authorization === bearer ? undefined : problem(401))),
    "todos.open",
  ],
  "stores nothing": [
    withResponse("POST", listPath, (response, _request, { todos }) => {
      todos.clear();
      return response;
    }),
    "create.stored",
  ],
  "fails on POST": [override("POST", listPath, () => problem(500)), "create.201"],
  "fails on GET of the list": [override("GET", listPath, () => problem(500)), "list.200"],
  "fails on GET of a to-do": [override("GET", todoPath, () => problem(500)), "get.200"],
  "fails on PATCH": [override("PATCH", todoPath, () => problem(500)), "update.200"],
  "fails on DELETE": [override("DELETE", todoPath, () => problem(500)), "delete.204"],
  "fails on whoami": [override("GET", whoamiPath, () => problem(500)), "whoami.200"],
  "accepts no token": [withAuthorization(whoamiPath, () => ""), "whoami.200"],
  "fails on admin": [override("GET", adminPath, () => problem(500)), "admin.200"],
  "has no PATCH": [override("PATCH", todoPath, () => problem(405)), "update.200"],
  "has no DELETE": [override("DELETE", todoPath, () => problem(405)), "delete.204"],
  "has no /admin/": [override("*", adminPath, () => problem(404)), "admin.200"],
  "sends no challenge for unknown tokens": [
    withResponse("*", whoamiPath, (response, { authorization }) => {
      if (authorization !== "") response.headers.delete("www-authenticate");
      return response;
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
  "changes the wording of a message": [
    withResponse("POST", listPath, (response) =>
      withBody(response, (text) => text.replace("not be empty", "not be blank")),
    ),
    "title.empty.message",
  ],
  "omits the name of the field": [
    withResponse("POST", listPath, (response) =>
      withBody(response, (text) => text.replaceAll('"field":"title",', "")),
    ),
    "validation.field",
  ],
  "rejects invalid titles with 400": [
    withResponse("POST", listPath, (response) =>
      response.status === 422 ? withStatus(response, 400) : response,
    ),
    "title.empty.422",
  ],
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
    withRequest((request) => ({
      ...request,
      body: request.body.replace(/^\{"title":(\d+)}$/, '{"title":"$1"}'),
    })),
    "newtodo.title.string",
  ],
  "stores a to-do without a title": [
    override("POST", listPath, ({ body }, state) =>
      body === "{}" ? storeTodo("untitled", state) : undefined,
    ),
    "newtodo.title.required",
  ],
  "lists in descending order": [withList((elements) => elements.reverse()), "list.order"],
  "sorts the list as text": [withList((elements) => elements.sort()), "list.order"],
  "lists only the first ten": [withList((elements) => elements.slice(0, 10)), "list.unlimited"],
  "returns null for an empty list": [
    withResponse("GET", listPath, (response, _request, state) =>
      state.todos.size > 0 ? response : json(200, "null"),
    ),
    "list.empty",
  ],
  "treats done=false as true": [
    withRequest((request) => ({ ...request, body: request.body.replace('"done":false', '"done":true') })),
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
    override("PATCH", todoPath, (request, state) => {
      const before = new Map(state.todos);
      const response = handleRequest(request, state);
      for (const [id, todo] of before) state.todos.set(id, todo);
      return response;
    }),
    "update.stored",
  ],
  "changes every to-do": [
    withResponse("PATCH", todoPath, (response, { body }, state) => {
      const done = ownProperty(parseJson(body), "done") === true;
      if (response.ok) for (const [id, todo] of state.todos) state.todos.set(id, { ...todo, done });
      return response;
    }),
    "update.only-one",
  ],
  "changes the title on PATCH": [
    withResponse("PATCH", todoPath, (response, { path, body }, state) => {
      const todo = findTodo(path, state);
      const title = ownProperty(parseJson(body), "title");
      if (todo !== undefined && typeof title === "string") state.todos.set(todo.id, { ...todo, title });
      return response;
    }),
    "patch.only-done",
  ],
  "accepts a string as boolean": [
    withRequest((request) => ({
      ...request,
      body: request.body.replace(/"done":"(true|false)"/, '"done":$1'),
    })),
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
    "absent.unchanged",
  ],
  "creates an absent to-do on PATCH": [
    override("PATCH", todoPath, ({ path }, state) => {
      const id = BigInt(/todos\/(\d+)$/.exec(path)?.[1] ?? 0);
      if (id > 0n && id < 2n ** 53n && !state.todos.has(id))
        state.todos.set(id, { id, title: "new", done: false });
      return undefined;
    }),
    "absent.unchanged",
  ],
  "responds to a malformed id with 404": [
    withResponse("*", todoPath, (response, { path }) =>
      response.status === 400 && !/^\d+$/.test(path.slice(11)) ? problem(404) : response,
    ),
    "id.distinct-status",
  ],
  "ignores text after an id": [
    withRequest((request) => ({ ...request, path: request.path.replace(/(todos\/\d+)\D.*$/, "$1") })),
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
    override("*", todoPath, ({ path }) =>
      BigInt(/\d+$/.exec(path)?.[0] ?? 0) >= 2n ** 63n ? problem(400) : undefined,
    ),
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
    withRequest((request) => ({ ...request, path: request.path.replace(/^\/todos/, "/api/todos") })),
    "api.prefix",
  ],
  "also serves to-dos under a version prefix": [
    withRequest((request) => ({ ...request, path: request.path.replace("/api/v1/", "/api/") })),
    "api.no-version",
  ],
  "sends no challenge": [
    withResponse("*", whoamiPath, (response) => {
      response.headers.delete("www-authenticate");
      return response;
    }),
    "bearer.missing.challenge",
  ],
  "rejects tokens with 403": [
    withResponse("*", whoamiPath, (response) => (response.ok ? response : withStatus(response, 403))),
    "bearer.missing.401",
  ],
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
  "returns the name of another client": [
    withResponse("*", whoamiPath, (response) => withBody(response, () => "someone")),
    "whoami.name",
  ],
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
  "greets without a name": [
    withResponse("*", adminPath, (response) => withBody(response, () => "Hello!")),
    "admin.greeting",
  ],
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
      response.ok || authorization === "" ? response : withStatus(response, 500),
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
    withResponse("GET", listPath, (response) =>
      withBody(response, (text) => text.replace(/"title":"([^"\\]|\\.)*"/g, '"title":null')),
    ),
    "todo.title.type",
  ],
  "responds to POST with only the id": [
    withResponse("POST", listPath, (response) =>
      withBody(response, (text) => text.replace(/^(\{"id":\d+).*/, "$1}")),
    ),
    "create.answer",
  ],
  "creates to-dos that are done": [
    withResponse("POST", listPath, (response, _request, state) => {
      for (const [id, todo] of state.todos)
        if (id === state.lastId) state.todos.set(id, { ...todo, done: true });
      return withBody(response, (text) => text.replace('"done":false', '"done":true'));
    }),
    "create.done",
  ],
  "also deletes the previous to-do": [
    withResponse("DELETE", todoPath, (response, { path }, state) => {
      state.todos.delete(BigInt(/^\/api\/todos\/(\d+)$/.exec(path)?.[1] ?? 0) - 1n);
      return response;
    }),
    "delete.only-one",
  ],
  "responds to the list with 206": [
    withResponse("GET", listPath, (response) => withStatus(response, 206)),
    "list.200",
  ],
  "wraps the list in an object": [
    withResponse("GET", listPath, (response) => withBody(response, (text) => `{"items":${text}}`)),
    "list.array",
  ],
  "responds to GET with 203": [
    withResponse("GET", todoPath, (response) => (response.ok ? withStatus(response, 203) : response)),
    "get.200",
  ],
  "responds to PATCH with 202": [
    withResponse("PATCH", todoPath, (response) => (response.ok ? withStatus(response, 202) : response)),
    "update.200",
  ],
  "responds to PATCH with the to-do before the change": [
    override("PATCH", todoPath, ({ path, ...request }, state) => {
      const before = findTodo(path, state);
      const response = handleRequest({ path, ...request }, state);
      return before !== undefined && response.ok ? json(200, serialize(before)) : response;
    }),
    "update.answer",
  ],
  "responds to whoami with 203": [
    withResponse("*", whoamiPath, (response) => (response.ok ? withStatus(response, 203) : response)),
    "whoami.200",
  ],
  "responds to admin with 203": [
    withResponse("*", adminPath, (response) => (response.ok ? withStatus(response, 203) : response)),
    "admin.200",
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
  "reports only the first violation": withResponse("POST", listPath, (response) =>
    withBody(response, (text) => text.replace(/},\{"field".*?}/, "}")),
  ),
  "reports only the length of a long blank title": withResponse("POST", listPath, (response) =>
    withBody(response, (text) => text.replace(/\{"field":"title","message":"must not be empty"},/, "")),
  ),
  "trims titles": withRequest((request) => ({
    ...request,
    body: request.body.replace(/^\{"title":"(\s|\\[nt])*(.*?\w.*?)(\s|\\[nt])*"}$/, '{"title":"$2"}'),
  })),
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

test("suiteErrors finds no error in the kit", () => {
  expect(suiteErrors(rules, suites, dependencies)).toEqual([]);
});

test("suiteErrors reports rules that depend on themselves", () => {
  const [a, b, c] = ["a", "b", "c"].map((id) => ({ id, section: "1", description: "" }) as const);
  if (a === undefined || b === undefined || c === undefined) throw new Error("three rules");
  expect(suiteErrors([a, b, c], [{ a: 1, b: 1, c: 1 }], { a: ["b"], b: ["c"], c: ["b"] })).toEqual([
    "the rule b depends on itself",
    "the rule c depends on itself",
  ]);
});

test("suiteErrors reports rules without a case and cases without a rule", () => {
  const rule = (id: string) => ({ id, section: "1", description: "" }) as const;
  const notObservable = { ...rule("d"), notObservable: "reason" };
  expect(
    suiteErrors(
      [rule("a"), rule("b"), rule("b"), notObservable],
      [
        { a: 1, d: 1 },
        { a: 1, c: 1 },
      ],
    ),
  ).toEqual([
    "two rules have the id b",
    "two cases check the rule a",
    "a case checks the unknown rule c",
    "the rule b has neither a case nor notObservable",
    "the rule b has neither a case nor notObservable",
    "the rule d has both a case and notObservable",
  ]);
});

test("each rule that is not observable names a test that proves it", () => {
  const reasons = rules.flatMap(({ notObservable }) => notObservable ?? []);
  expect(reasons).not.toBeEmpty();
  for (const reason of reasons) expect(reason).toMatch(/^.+ — proved by \S+\.test\.ts ".+"$/);
});

test("each rule with a case is violated by a faulty server", () => {
  const violated = new Set<string>(Object.values(FAULTS).map(([, id]) => id));
  const observable = rules.filter(({ notObservable }) => notObservable === undefined);
  expect(observable.map(({ id }) => id).filter((id) => !violated.has(id))).toEqual([]);
});

describe("checkServer", () => {
  test("accepts the reference server", async () => {
    const report = await check(handleRequest);
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(idsWithStatus(report, "skipped")).toEqual([]);
    expect(report.passed).toBe(true);
  });

  test("leaves the to-dos of other clients unchanged while they write", async () => {
    const state: State = { todos: new Map([[7n, { id: 7n, title: "existing", done: true }]]), lastId: 9n };
    const otherIds = new Set([7n]);
    const withOtherClients: Handler = (request, state) => {
      if (request.method === "POST") storeTodo("concurrent", state);
      if (request.method === "POST") otherIds.add(state.lastId);
      return handleRequest(request, state);
    };
    const report = await check(withOtherClients, { token, user }, state);
    expect(idsWithStatus(report, "failed")).toEqual([]);
    expect(new Set(state.todos.keys())).toEqual(otherIds);
  });

  test("fails if a credential is missing, but not without --fresh", async () => {
    const [complete, noFresh, noToken, noUser] = [
      await check(handleRequest),
      await check(handleRequest, { token, user }),
      await check(handleRequest, { user, fresh: true }),
      await check(handleRequest, { token, fresh: true }),
    ];
    expect([complete, noFresh, noToken, noUser].map(({ passed }) => passed)).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(idsWithStatus(noFresh, "skipped")).toContain("todo.id.first");
    expect(idsWithStatus(noToken, "skipped")).toContain("whoami.200");
    expect(idsWithStatus(noUser, "skipped")).toContain("admin.200");
  });

  test.each(Object.entries(PERMITTED_VARIANTS))("accepts a server that %s", async (_, handler) => {
    expect(idsWithStatus(await check(handler), "failed")).toEqual([]);
  });

  test.each(Object.entries(FAULTS))("rejects a server that %s", async (_, [handler, expected]) => {
    const report = await check(handler);
    expect(idsWithStatus(report, "failed")).toEqual([expected]);
    expect(report.passed).toBe(false);
  });

  test("names the failed rule for each rule that it does not judge", async () => {
    const [handler] = FAULTS["toggles done instead of setting it"] ?? [handleRequest];
    const { results } = await check(handler);
    const notJudged = results.flatMap((result) => (result.status === "not judged" ? [result] : []));
    expect(notJudged.map(({ rule, reason }) => [rule.id, reason])).toEqual(
      ["patch.done.required", "patch.done.boolean", "update.to-false"].map((id) => [
        id,
        "not judged because update.to-true failed",
      ]),
    );
  });

  test("reports two independent faults as two failed rules", async () => {
    const both = withResponse("*", anyTodoPath, (response) => {
      const changed = response.status === 201 ? withStatus(response, 200) : response;
      return response.status === 422 ? withStatus(response, 400) : changed;
    });
    expect(idsWithStatus(await check(both), "failed")).toEqual(["create.201", "title.empty.422"]);
  });

  test("continues after a request that gets no response", async () => {
    const hangs = override("GET", todoPath, () => new Promise<never>(() => {}));
    const report = await check(hangs, { ...ALL_OPTIONS, timeoutMs: 50 });
    expect(idsWithStatus(report, "failed")).toContain("get.200");
    expect(idsWithStatus(report, "passed")).toContain("list.200");
  });
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
      await run(baseUrl, ...credentials, "--client-name", clientName, "--fresh"),
      await run(baseUrl, ...credentials, "--client-name", "someone else"),
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
