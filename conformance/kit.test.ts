/** The kit's own tests: a right server passes, and each wrong one is found out by the rules it breaks. */
import { describe, expect, test } from "bun:test";
import { gaps, judge, type Options, type Report, rules, themes } from "./judge.ts";
import {
  type Call,
  clientName,
  failure,
  type Handler,
  json,
  reference,
  type State,
  serving,
  store,
  type Todo,
  token,
  user,
  write,
} from "./reference.ts";
import { member, parseJson } from "./service.ts";

const everything = { token, user, clientName, fresh: true };

function judged(
  handler: Handler,
  options: Omit<Options, "base"> = everything,
  state = emptyState(),
): Promise<Report> {
  return serving(handler, state, (base) => judge({ base, ...options }));
}

function emptyState(): State {
  return { todos: new Map(), last: 0n };
}

function withResult(report: Report, result: string): string[] {
  return report.verdicts.filter((verdict) => verdict.result === result).map(({ rule }) => rule.id);
}

// How a server is made wrong, or right in another way: the reference, with one thing changed.

const todos = /^\/api\/todos$/;
const item = /^\/api\/todos\/./;
const anyTodo = /^\/api\/todos/;
const whoami = /^\/api\/whoami$/;
const admin = /^\/admin\/$/;

/** Every request is read as another. */
function asked(change: (call: Call) => Call): Handler {
  return (call, state) => reference(change(call), state);
}

/** Requests with this method on such a path go elsewhere, or, where that yields undefined, on as they were. */
function instead(
  method: string,
  path: RegExp,
  handle: (call: Call, state: State) => Response | undefined | Promise<Response | undefined>,
): Handler {
  return async (call, state) => {
    const concerned = (method === "*" || method === call.method) && path.test(call.path);
    return (concerned ? await handle(call, state) : undefined) ?? reference(call, state);
  };
}

/** Requests with this method on such a path get the right answer, changed. */
function answered(
  method: string,
  path: RegExp,
  change: (response: Response, call: Call, state: State) => Response | Promise<Response>,
): Handler {
  return instead(method, path, (call, state) => change(reference(call, state), call, state));
}

/** POSTs with such a title go elsewhere. */
function titled(
  when: (title: string) => boolean,
  handle: (title: string, state: State) => Response,
): Handler {
  return instead("POST", todos, ({ body }, state) => {
    const title = member(parseJson(body), "title");
    return typeof title === "string" && when(title) ? handle(title, state) : undefined;
  });
}

/** The item that a path names. */
function itemOf(path: string, { todos }: State): Todo | undefined {
  const id = /^\/api\/todos\/(\d+)$/.exec(path)?.[1];
  return id === undefined ? undefined : todos.get(BigInt(id));
}

/** A list as a faulty server answers it. */
function listing(arrange: (items: string[]) => string[]): Handler {
  return instead("GET", todos, (_call, { todos }) => {
    const items = [...todos.values()].map(write);
    return json(200, `[${arrange(items).join()}]`);
  });
}

/** The same answer with another text. */
async function rewritten(response: Response, rewrite: (text: string) => string): Promise<Response> {
  const text = await response.text();
  return new Response(text === "" ? null : rewrite(text), response);
}

async function withStatus(response: Response, status: number): Promise<Response> {
  const text = await response.text();
  return new Response(text === "" ? null : text, { status, headers: response.headers });
}

function withHeader(response: Response, name: string, value: string): Response {
  response.headers.set(name, value);
  return response;
}

/** Callers of a path share one variable, and each waits before it is read. */
function mixedUp(path: RegExp): Handler {
  let authorization = "";
  return instead("*", path, async (call, state) => {
    authorization = call.authorization;
    await Bun.sleep(2);
    return reference({ ...call, authorization }, state);
  });
}

function withAuthorization(path: RegExp, change: (authorization: string) => string): Handler {
  return asked((call) =>
    path.test(call.path) ? { ...call, authorization: change(call.authorization) } : call,
  );
}

const bearer = `Bearer ${token}`;
const basic = `Basic ${btoa(`${user.name}:${user.password}`)}`;

function pairOf(authorization: string): string[] {
  return authorization.startsWith("Basic ")
    ? Buffer.from(authorization.slice(6), "base64").toString().split(":")
    : [];
}

/** Wrong servers, each with exactly the rules that must fail. */
const faults: Readonly<Record<string, [Handler, string[]]>> = {
  "reuses the id of a deleted item": [
    answered("DELETE", item, (response, _call, state) => {
      state.last = [...state.todos.keys()].at(-1) ?? 0n;
      return response;
    }),
    ["todo.id.not-reused", "counter.only-stored"],
  ],
  "counts by two": [
    instead("POST", todos, (_call, state) => {
      state.last += 1n;
      return undefined;
    }),
    ["todo.id.first", "todo.id.step", "create.invalid.counter", "counter.only-stored"],
  ],
  "counts from 0": [
    instead("POST", todos, (_call, state) => {
      if (state.last === 0n && state.todos.size === 0) state.last = -1n;
      return undefined;
    }),
    ["todo.id.first", "id.range"],
  ],
  "gives simultaneous items one id": [
    instead("POST", todos, async (call, state) => {
      const { last } = state;
      await Bun.sleep(1);
      const response = reference(call, state);
      if (response.ok) state.last = last + 1n;
      return rewritten(response, (text) => text.replace(/"id":\d+/, `"id":${last + 1n}`));
    }),
    ["todo.id.unique"],
  ],
  "takes the id that is sent": [
    instead("POST", todos, ({ body }, state) => {
      const [id, title] = [member(parseJson(body), "id"), member(parseJson(body), "title")];
      return typeof id === "bigint" && typeof title === "string" ? store(title, state, id) : undefined;
    }),
    ["todo.id.assigned"],
  ],
  "takes the done that is sent": [
    answered("POST", todos, (response, { body }) =>
      rewritten(response, (text) => (/"done":true/.test(body) ? text.replace("false", "true") : text)),
    ),
    ["todo.done.assigned"],
  ],
  "moves the counter for a rejected item": [
    answered("POST", todos, (response, _call, state) => {
      if (response.status === 422) state.last += 1n;
      return response;
    }),
    ["create.invalid.counter"],
  ],
  "moves the counter for a malformed body": [
    answered("POST", todos, (response, _call, state) => {
      if (response.status === 400) state.last += 1n;
      return response;
    }),
    ["counter.only-stored"],
  ],
  "answers POST with 200": [
    answered("POST", todos, (response) => (response.status === 201 ? withStatus(response, 200) : response)),
    ["create.201"],
  ],
  "answers with one key more": [
    answered("*", anyTodo, (response) =>
      rewritten(response, (text) => text.replaceAll('"id":', '"links":[],"id":')),
    ),
    ["todo.keys"],
  ],
  "answers with an id that is text": [
    answered("GET", anyTodo, (response) =>
      rewritten(response, (text) => text.replace(/"id":(\d+)/g, '"id":"$1"')),
    ),
    [
      "api.prefix",
      "todo.id.type",
      "patch.only-done",
      "create.stored",
      "list.complete",
      "list.order",
      "get.answer",
    ],
  ],
  "answers with done as a number": [
    answered("GET", todos, (response) =>
      rewritten(response, (text) => text.replace(/"done":\w+/g, '"done":0')),
    ),
    ["todo.done.type", "list.complete"],
  ],
  "sends JSON as text/html": [
    answered("*", anyTodo, (response) => withHeader(response, "content-type", "text/html")),
    ["json.success", "json.errors"],
  ],
  "sends errors as text": [
    answered("*", anyTodo, (response) =>
      response.ok ? response : withHeader(response, "content-type", "text/plain"),
    ),
    ["json.errors"],
  ],
  "folds blanks inside a title": [
    asked((call) => ({ ...call, body: call.body.replace(/(\w) +(\w)/g, "$1 $2") })),
    ["create.title"],
  ],
  "normalises titles": [asked((call) => ({ ...call, body: call.body.normalize("NFC") })), ["create.title"]],
  "accepts a title of 121": [
    titled((title) => title.length === 121 && title.trim() !== "", store),
    [
      "create.invalid.not-stored",
      "create.invalid.counter",
      "title.long.422",
      "title.long.message",
      "validation.field",
      "title.characters",
    ],
  ],
  "refuses a title of 120": [
    titled(
      (title) => /^x{120}$/.test(title),
      () => failure(422),
    ),
    ["title.120"],
  ],
  "counts bytes": [
    titled(
      (title) => title.length <= 120 && Buffer.byteLength(title) > 120,
      () => failure(422),
    ),
    ["title.characters"],
  ],
  "accepts a title of blanks": [
    titled((title) => /^\s{1,120}$/.test(title), store),
    ["create.invalid.not-stored", "create.invalid.counter", "title.blank.422", "title.empty.message"],
  ],
  "refuses blanks around a title": [
    titled(
      (title) => !["", title].includes(title.trim()),
      () => failure(422),
    ),
    ["title.padded"],
  ],
  "reports only the first failure": [
    answered("POST", todos, (response) =>
      rewritten(response, (text) => text.replace(/},\{"field".*?}/, "}")),
    ),
    ["validation.together"],
  ],
  "reports both failures always": [
    answered("POST", todos, (response) =>
      response.status !== 422
        ? response
        : failure(422, [
            { field: "title", message: "must not be empty" },
            { field: "title", message: "must be at most 120 characters" },
          ]),
    ),
    ["validation.only-failed"],
  ],
  "words a message in its own way": [
    answered("POST", todos, (response) =>
      rewritten(response, (text) => text.replace("not be empty", "not be blank")),
    ),
    ["title.empty.message", "validation.together"],
  ],
  "names no field": [
    answered("POST", todos, (response) =>
      rewritten(response, (text) => text.replaceAll('"field":"title",', "")),
    ),
    ["validation.field"],
  ],
  "rejects with 400": [
    answered("POST", todos, (response) => (response.status === 422 ? withStatus(response, 400) : response)),
    ["title.empty.422", "title.blank.422", "title.long.422"],
  ],
  "stores the first of an array": [
    asked((call) => ({ ...call, body: /^\[\{"title"/.test(call.body) ? call.body.slice(1, -1) : call.body })),
    ["create.validates-first"],
  ],
  "breaks on malformed JSON": [
    instead("*", anyTodo, ({ method, body }) =>
      /POST|PATCH/.test(method) && parseJson(body) === undefined ? failure(500) : undefined,
    ),
    ["body.create.4xx", "body.update.4xx"],
  ],
  "writes a number as the title": [
    asked((call) => ({ ...call, body: call.body.replace(/^\{"title":(\d+)}$/, '{"title":"$1"}') })),
    ["newtodo.title.string", "counter.only-stored"],
  ],
  "takes a missing title for an untitled item": [
    instead("POST", todos, ({ body }, state) => (body === "{}" ? store("untitled", state) : undefined)),
    ["newtodo.title.required", "counter.only-stored"],
  ],
  "lists backwards": [listing((items) => items.reverse()), ["list.order"]],
  "lists in the order of text": [listing((items) => items.sort()), ["list.order"]],
  "lists the first ten": [listing((items) => items.slice(0, 10)), ["list.complete"]],
  "has no list when empty": [
    answered("GET", todos, (response, _call, state) => (state.todos.size > 0 ? response : json(200, "null"))),
    ["list.empty"],
  ],
  "ignores done=false": [
    asked((call) => ({ ...call, body: call.body.replace('"done":false', '"done":true') })),
    ["patch.done.required", "patch.done.boolean", "update.to-false"],
  ],
  "toggles done": [
    instead("PATCH", item, ({ path, body }, state) => {
      const todo = itemOf(path, state);
      if (todo === undefined || typeof member(parseJson(body), "done") !== "boolean") return undefined;
      const changed = { ...todo, done: !todo.done };
      state.todos.set(todo.id, changed);
      return json(200, write(changed));
    }),
    ["patch.done.required", "patch.done.boolean", "update.to-true", "update.to-false"],
  ],
  "forgets the change": [
    instead("PATCH", item, (call, state) => {
      const before = new Map(state.todos);
      const response = reference(call, state);
      for (const [id, todo] of before) state.todos.set(id, todo);
      return response;
    }),
    ["patch.done.required", "patch.done.boolean", "update.stored", "list.complete"],
  ],
  "changes every item": [
    answered("PATCH", item, (response, { body }, state) => {
      const done = member(parseJson(body), "done") === true;
      if (response.ok) for (const [id, todo] of state.todos) state.todos.set(id, { ...todo, done });
      return response;
    }),
    ["update.only-one", "list.complete"],
  ],
  "changes the title": [
    answered("PATCH", item, (response, { path, body }, state) => {
      const todo = itemOf(path, state);
      const title = member(parseJson(body), "title");
      if (todo !== undefined && typeof title === "string") state.todos.set(todo.id, { ...todo, title });
      return response;
    }),
    ["patch.only-done"],
  ],
  "takes text for a boolean": [
    asked((call) => ({ ...call, body: call.body.replace(/"done":"(true|false)"/, '"done":$1') })),
    ["patch.done.boolean"],
  ],
  "takes a missing done for false": [
    asked((call) =>
      call.method === "PATCH" && call.body === "{}" ? { ...call, body: '{"done":false}' } : call,
    ),
    ["patch.done.required"],
  ],
  "answers DELETE with the item": [
    answered("DELETE", item, (response) => (response.ok ? json(200, '{"deleted":true}') : response)),
    ["delete.204", "delete.empty"],
  ],
  "keeps deleted items": [
    instead("DELETE", item, (call, state) => {
      const { ok } = reference({ ...call, method: "GET" }, state);
      return ok ? new Response(null, { status: 204 }) : undefined;
    }),
    [
      "delete.removes",
      "delete.once",
      "absent.unchanged",
      "list.complete",
      "get.absent.404",
      "update.absent.404",
      "delete.absent.404",
    ],
  ],
  "keeps what is done": [
    instead("DELETE", item, ({ path }, state) =>
      itemOf(path, state)?.done === true ? failure(409) : undefined,
    ),
    ["delete.either-state", "absent.unchanged", "todos.no-authentication"],
  ],
  "brings back what is deleted during an update": [
    instead("PATCH", item, async (call, state) => {
      const response = reference(call, state);
      const todo = itemOf(call.path, state);
      await Bun.sleep(2);
      if (todo !== undefined) state.todos.set(todo.id, todo);
      return response;
    }),
    ["absent.unchanged"],
  ],
  "creates on PATCH": [
    instead("PATCH", item, ({ path }, state) => {
      const id = BigInt(/todos\/(\d+)$/.exec(path)?.[1] ?? 0);
      if (id > 0n && id < 2n ** 53n && !state.todos.has(id))
        state.todos.set(id, { id, title: "new", done: false });
      return undefined;
    }),
    ["absent.unchanged", "update.absent.404"],
  ],
  "answers 404 to a malformed id": [
    answered("*", item, (response, { path }) =>
      response.status === 400 && !/^\d+$/.test(path.slice(11)) ? failure(404) : response,
    ),
    ["id.distinct-status", "get.malformed.400", "update.malformed.400", "delete.malformed.400"],
  ],
  "reads an id as far as it can": [
    asked((call) => ({ ...call, path: call.path.replace(/(todos\/\d+)\D.*$/, "$1") })),
    ["get.malformed.400", "update.malformed.400", "delete.malformed.400"],
  ],
  "rounds ids to doubles": [
    asked((call) => ({ ...call, path: call.path.replace(/\d{17,}$/, (id) => String(BigInt(Number(id)))) })),
    ["id.range"],
  ],
  "knows ids of 63 bits only": [
    instead("*", item, ({ path }) =>
      BigInt(/\d+$/.exec(path)?.[0] ?? 0) >= 2n ** 63n ? failure(400) : undefined,
    ),
    ["id.range"],
  ],
  "wraps ids round": [
    asked((call) => ({
      ...call,
      path: call.path.replace(/\d+$/, (id) => String(BigInt.asUintN(64, BigInt(id)))),
    })),
    ["id.out-of-range"],
  ],
  "judges credentials nobody asked for": [
    instead("*", anyTodo, ({ authorization }) => (authorization === "" ? undefined : failure(401))),
    ["todos.no-authentication"],
  ],
  "serves to-dos at the root too": [
    asked((call) => ({ ...call, path: call.path.replace(/^\/todos/, "/api/todos") })),
    ["api.prefix"],
  ],
  "has a version": [
    asked((call) => ({ ...call, path: call.path.replace("/api/v1/", "/api/") })),
    ["api.no-version"],
  ],
  "sends no challenge": [
    answered("*", whoami, (response) => {
      response.headers.delete("www-authenticate");
      return response;
    }),
    [
      "bearer.missing.challenge",
      "bearer.unknown.challenge",
      "bearer.near-miss.401",
      "bearer.scheme.401",
      "bearer.empty.401",
    ],
  ],
  "refuses tokens with 403": [
    answered("*", whoami, (response) => (response.ok ? response : withStatus(response, 403))),
    [
      "bearer.missing.401",
      "bearer.unknown.401",
      "bearer.near-miss.401",
      "bearer.scheme.401",
      "bearer.empty.401",
    ],
  ],
  "accepts any token": [
    withAuthorization(whoami, (sent) => (/^Bearer ./.test(sent) ? bearer : sent)),
    [
      "client.request",
      "bearer.unknown.401",
      "bearer.unknown.challenge",
      "bearer.near-miss.401",
      "bearer.refused.no-name",
    ],
  ],
  "accepts what begins with a token": [
    withAuthorization(whoami, (sent) => (sent.startsWith(bearer) ? bearer : sent)),
    ["bearer.near-miss.401"],
  ],
  "accepts the beginning of a token": [
    withAuthorization(whoami, (sent) => (sent.length > 7 && bearer.startsWith(sent) ? bearer : sent)),
    ["bearer.near-miss.401"],
  ],
  "takes a token under any scheme": [
    withAuthorization(whoami, (sent) => sent.replace(/^\w+ /, "Bearer ")),
    ["bearer.scheme.401"],
  ],
  "names the client to anyone": [
    answered("*", whoami, (response) => new Response(clientName, response)),
    ["bearer.refused.no-name"],
  ],
  "mixes up clients": [mixedUp(whoami), ["client.request"]],
  "names another client": [
    answered("*", whoami, (response) => rewritten(response, () => "someone")),
    ["whoami.name"],
  ],
  "answers whoami as JSON": [
    answered("*", whoami, (response) => (response.ok ? json(200, `{"name":"${clientName}"}`) : response)),
    ["whoami.name", "whoami.text"],
  ],
  "guards only GET of whoami": [instead("PUT", whoami, () => json(200, "{}")), ["bearer.router"]],
  "guards only /admin/ itself": [instead("GET", /^\/admin\/.+/, () => json(200, "{}")), ["basic.router"]],
  "guards /admin/ by its spelling": [
    instead("GET", /^\/\/admin\/$/, () => new Response(`Hello, ${user.name}!`)),
    ["basic.refused.no-greeting"],
  ],
  "ignores the password": [
    withAuthorization(admin, (sent) => (pairOf(sent)[0] === user.name ? basic : sent)),
    ["basic.password.refused", "basic.refused.no-greeting"],
  ],
  "ignores the user": [
    withAuthorization(admin, (sent) => (pairOf(sent)[1] === user.password ? basic : sent)),
    ["basic.user.refused"],
  ],
  "takes a pair under any scheme": [
    withAuthorization(admin, (sent) => sent.replace(/^\w+ /, "Basic ")),
    ["basic.scheme.refused"],
  ],
  "lets any credentials in": [
    withAuthorization(admin, (sent) => (sent === "" ? "" : basic)),
    [
      "basic.malformed.refused",
      "basic.password.refused",
      "basic.user.refused",
      "basic.scheme.refused",
      "basic.refused.no-greeting",
    ],
  ],
  "lets anyone in": [
    withAuthorization(admin, () => basic),
    [
      "basicuser.request",
      "basic.router",
      "basic.missing.refused",
      "basic.malformed.refused",
      "basic.password.refused",
      "basic.user.refused",
      "basic.scheme.refused",
      "basic.refused.no-greeting",
    ],
  ],
  "greets nobody": [
    answered("*", admin, (response) => rewritten(response, () => "Hello!")),
    ["admin.greeting"],
  ],
  "greets in JSON": [
    answered("*", admin, (response) => (response.ok ? json(200, `{"hello":"${user.name}"}`) : response)),
    ["admin.text"],
  ],
  "greets whoever came last": [mixedUp(admin), ["basicuser.request"]],
  "has no realm": [
    answered("*", admin, (response) =>
      response.ok ? response : withHeader(response, "www-authenticate", "Basic"),
    ),
    ["basic.realm"],
  ],
  "breaks on wrong passwords": [
    answered("*", admin, (response, { authorization }) =>
      response.ok || authorization === "" ? response : withStatus(response, 500),
    ),
    ["basic.malformed.refused", "basic.password.refused", "basic.user.refused", "basic.scheme.refused"],
  ],
  "counts down": [
    titled(
      (title) => title.trim() !== "" && title.length <= 120,
      (title, state) => store(title, state, (state.last || 1_000_000n) - 1n),
    ),
    [
      "todo.id.first",
      "todo.id.step",
      "todo.id.increasing",
      "todo.id.not-reused",
      "create.invalid.counter",
      "counter.only-stored",
      "list.order",
    ],
  ],
  "lists titles as null": [
    answered("GET", todos, (response) =>
      rewritten(response, (text) => text.replace(/"title":"([^"\\]|\\.)*"/g, '"title":null')),
    ),
    ["todo.title.type", "list.complete"],
  ],
  "answers POST with the id alone": [
    answered("POST", todos, (response) =>
      rewritten(response, (text) => text.replace(/^(\{"id":\d+).*/, "$1}")),
    ),
    [
      "todo.keys",
      "todo.title.type",
      "todo.done.type",
      "todo.done.assigned",
      "create.done",
      "create.answer",
      "create.title",
    ],
  ],
  "creates items that are done": [
    answered("POST", todos, (response, _call, state) => {
      for (const [id, todo] of state.todos)
        if (id === state.last) state.todos.set(id, { ...todo, done: true });
      return rewritten(response, (text) => text.replace('"done":false', '"done":true'));
    }),
    [
      "todo.done.assigned",
      "create.done",
      "update.only-one",
      "list.complete",
      "get.answer",
      "body.update.4xx",
    ],
  ],
  "deletes the item before, too": [
    answered("DELETE", item, (response, { path }, state) => {
      state.todos.delete(BigInt(/^\/api\/todos\/(\d+)$/.exec(path)?.[1] ?? 0) - 1n);
      return response;
    }),
    ["delete.only-one", "list.complete"],
  ],
  "answers the list with 206": [
    answered("GET", todos, (response) => withStatus(response, 206)),
    ["list.200"],
  ],
  "wraps the list in an object": [
    answered("GET", todos, (response) => rewritten(response, (text) => `{"items":${text}}`)),
    [
      "todo.keys",
      "todo.id.type",
      "todo.title.type",
      "todo.done.type",
      "create.invalid.not-stored",
      "delete.removes",
      "list.array",
      "list.empty",
      "list.complete",
      "list.order",
      "create.validates-first",
    ],
  ],
  "answers GET with 203": [
    answered("GET", item, (response) => (response.ok ? withStatus(response, 203) : response)),
    ["get.200"],
  ],
  "answers PATCH with 202": [
    answered("PATCH", item, (response) => (response.ok ? withStatus(response, 202) : response)),
    ["update.200"],
  ],
  "answers PATCH with the item before": [
    instead("PATCH", item, ({ path, ...call }, state) => {
      const before = itemOf(path, state);
      const response = reference({ path, ...call }, state);
      return before !== undefined && response.ok ? json(200, write(before)) : response;
    }),
    ["update.to-true", "update.to-false", "update.stored", "update.answer"],
  ],
  "answers whoami with 203": [
    answered("*", whoami, (response) => (response.ok ? withStatus(response, 203) : response)),
    ["whoami.200"],
  ],
  "answers admin with 203": [
    answered("*", admin, (response) => (response.ok ? withStatus(response, 203) : response)),
    ["admin.200"],
  ],
};

/** What is said in other words, or in none. */
function errorsAs(write: (messages: string[]) => Response): Handler {
  return answered("POST", todos, async (response) => {
    if (response.status !== 422) return response;
    return write((await response.text()).match(/must [\w ]+/g) ?? []);
  });
}

/** Right servers that use what the specification leaves open. */
const liberties: Readonly<Record<string, Handler>> = {
  "titles are trimmed": asked((call) => ({
    ...call,
    body: call.body.replace(/^\{"title":"(\s|\\[nt])*(.*?\w.*?)(\s|\\[nt])*"}$/, '{"title":"$2"}'),
  })),
  "the length counts UTF-16 units": titled(
    (title) => title.length > 120 && [...title].length <= 120,
    () => failure(422),
  ),
  "messages are listed under their field": errorsAs((title) =>
    json(422, JSON.stringify({ errors: { title } })),
  ),
  "messages stand in one text": errorsAs((messages) =>
    json(422, JSON.stringify({ error: `title ${messages.join(", ")}` })),
  ),
  "messages stand beside a pointer": errorsAs((messages) =>
    json(422, JSON.stringify(messages.map((detail) => ({ pointer: "#/title", detail })))),
  ),
  "other errors have no body": answered("*", anyTodo, (response) =>
    [400, 404].includes(response.status) ? new Response(null, { status: response.status }) : response,
  ),
  "malformed bodies get 422": instead("*", anyTodo, ({ body }) =>
    body !== "" && parseJson(body) === undefined ? failure(422) : undefined,
  ),
  "unknown keys are refused": instead("*", anyTodo, ({ body }) =>
    /"(title|done)":[^,]*,"|"id":/.test(body) ? failure(422) : undefined,
  ),
  "ids have no leading zeros": instead("*", item, ({ path }) =>
    /todos\/0\d/.test(path) ? failure(400) : undefined,
  ),
  "Basic is refused with 403": answered("*", admin, (response) =>
    response.ok ? response : new Response("Forbidden", { status: 403 }),
  ),
  "the greeting is a page": answered("*", admin, (response) =>
    response.ok
      ? new Response(`<h1>Hello, ${user.name}</h1>`, { headers: { "content-type": "text/html" } })
      : response,
  ),
};

test("each rule has one case, or says why none can be", () => {
  expect(gaps(rules, themes)).toEqual([]);
});

test("a rule nobody proves and a case for no rule are found", () => {
  const rule = (id: string) => ({ id, section: "1", says: "" }) as const;
  const unseen = { ...rule("d"), notObservable: "why" };
  expect(
    gaps(
      [rule("a"), rule("b"), rule("b"), unseen],
      [
        { a: 1, d: 1 },
        { a: 1, c: 1 },
      ],
    ),
  ).toEqual([
    "two rules have the id b",
    "two cases prove a",
    "a case names c, which is no rule",
    "the rule b has neither a case nor notObservable",
    "the rule b has neither a case nor notObservable",
    "the rule d has both a case and notObservable",
  ]);
});

test("a rule that is not observable names the test that proves it", () => {
  const unseen = rules.flatMap(({ notObservable }) => notObservable ?? []);
  expect(unseen).not.toBeEmpty();
  for (const why of unseen) expect(why).toMatch(/^.+ — proved by \S+\.test\.ts ".+"$/);
});

test("each rule with a case is broken by a planted fault", () => {
  const broken = new Set([...Object.values(faults).flatMap(([, ids]) => ids), "todos.open"]);
  const observable = rules.filter(({ notObservable }) => notObservable === undefined);
  expect(observable.map(({ id }) => id).filter((id) => !broken.has(id))).toEqual([]);
});

describe("a right server", () => {
  test("passes wholly", async () => {
    const report = await judged(reference);
    expect(withResult(report, "failed")).toEqual([]);
    expect(withResult(report, "not judged")).toEqual([]);
    expect(report.passed).toBe(true);
  });

  test("is left as it was, beside the to-dos and the writes of others", async () => {
    const state: State = { todos: new Map([[7n, { id: 7n, title: "theirs", done: true }]]), last: 9n };
    const kept = new Set([7n]);
    const busy: Handler = (call, state) => {
      if (call.method === "POST") store("theirs too", state);
      if (call.method === "POST") kept.add(state.last);
      return reference(call, state);
    };
    const report = await judged(busy, { token, user }, state);
    expect(withResult(report, "failed")).toEqual([]);
    expect(new Set(state.todos.keys())).toEqual(kept);
  });

  test("does not pass unjudged: without a credential, but without --fresh", async () => {
    const [whole, noFresh, noToken, noUser] = [
      await judged(reference),
      await judged(reference, { token, user }),
      await judged(reference, { user, fresh: true }),
      await judged(reference, { token, fresh: true }),
    ];
    expect([whole, noFresh, noToken, noUser].map(({ passed }) => passed)).toEqual([true, true, false, false]);
    expect(withResult(noFresh, "not judged")).toContain("todo.id.first");
    expect(withResult(noToken, "not judged")).toContain("whoami.200");
    expect(withResult(noUser, "not judged")).toContain("admin.200");
  });

  test.each(Object.entries(liberties))(
    "may do what the specification leaves open: %s",
    async (_, handler) => {
      expect(withResult(await judged(handler), "failed")).toEqual([]);
    },
  );
});

describe("a wrong server", () => {
  test.each(Object.entries(faults))("is found out: it %s", async (_, [handler, expected]) => {
    const report = await judged(handler);
    expect(withResult(report, "failed")).toEqual(expected);
    expect(report.passed).toBe(false);
  });

  test("is found out: it demands credentials for to-dos", async () => {
    const closed = instead("*", anyTodo, ({ authorization }) =>
      authorization === bearer ? undefined : failure(401),
    );
    expect(withResult(await judged(closed), "failed")).toContain("todos.open");
  });

  test("that never answers fails the case, not the run", async () => {
    const hangs = instead("GET", item, () => new Promise<never>(() => {}));
    const report = await judged(hangs, { ...everything, timeoutMs: 50 });
    expect(withResult(report, "failed")).toContain("get.200");
    expect(withResult(report, "passed")).toContain("list.200");
  });
});

describe("the command", () => {
  const run = async (...args: string[]) => {
    const env = { ...process.env, CONFORMANCE_TOKEN: undefined, CONFORMANCE_USER: undefined };
    const command = [process.execPath, "--no-env-file", `${import.meta.dir}/run.ts`, ...args];
    const child = Bun.spawn(command, { env, stdout: "pipe", stderr: "pipe" });
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    return { code: await child.exited, out, err };
  };

  test("prints each rule and exits with the verdict", async () => {
    const credentials = ["--token", token, "--user", `${user.name}:${user.password}`];
    const [right, wrong] = await serving(reference, emptyState(), async (base) => [
      await run(base, ...credentials, "--client-name", clientName, "--fresh"),
      await run(base, ...credentials, "--client-name", "someone else"),
    ]);
    expect(right?.code).toBe(0);
    for (const { id } of rules) expect(right?.out).toContain(` ${id} `);
    expect(wrong?.code).toBe(1);
    expect(wrong?.out).toMatch(
      /✗ whoami\.name .*\n.*GET \/api\/whoami .*expected exactly “someone else”, got 200/,
    );
    expect(right?.out + String(wrong?.out)).not.toContain(token);
  });

  test.each([
    [[], "missing required argument"],
    [["localhost:3000"], "the URL must be http or https"],
    [["http://localhost", "--user", "ann"], "NAME:PASSWORD"],
    [["http://localhost", "--token", ""], "the token must be"],
    [["http://localhost", "--tokn", "x"], "unknown option '--tokn'"],
  ])("refuses %p in one line, with 2", async (args, why) => {
    const { code, out, err } = await run(...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(/^error: .+\n$/);
    expect(err).toContain(why);
  });

  test("says that nothing answers, with 1", async () => {
    const { code, err } = await run("http://127.0.0.1:1");
    expect(code).toBe(1);
    expect(err).toMatch(/^error: GET \/api\/todos: expected an answer, got none: .+\n$/);
  });
});
