/**
 * A right server, as small as it can be, for the kit's own tests: they judge it as it is, and with one fault at a time.
 * It is no part of the judgement.
 */
import { type Json, member, parseJson } from "./service.ts";

/** What a handler gets: the parts of a request that matter here. */
export interface Call {
  readonly method: string;
  readonly path: string;
  readonly body: string;
  readonly authorization: string;
}

export interface Todo {
  readonly id: bigint;
  readonly title: string;
  readonly done: boolean;
}

export interface State {
  readonly todos: Map<bigint, Todo>;
  last: bigint;
}

export type Handler = (call: Call, state: State) => Response | Promise<Response>;

export const token = "Reference-Token-1";
export const user = { name: "ann", password: "open sesame" };
export const clientName = "demo";

const bearer = `Bearer ${token}`;
const basic = `Basic ${btoa(`${user.name}:${user.password}`)}`;

export function reference({ method, path, body, authorization }: Call, state: State): Response {
  if (path === "/admin/")
    return authorization === basic ? new Response(`Hello, ${user.name}!`) : refuse("Basic");
  if (path === "/api/whoami") return authorization === bearer ? new Response(clientName) : refuse("Bearer");
  if (path === "/api/todos") {
    if (method === "GET") return json(200, `[${[...state.todos.values()].map(write).join()}]`);
    return method === "POST" ? create(body, state) : failure(405);
  }
  const id = /^\/api\/todos\/([^/]+)$/.exec(path)?.[1];
  if (id === undefined) return failure(404);
  if (!/^\d+$/.test(id) || BigInt(id) >= 2n ** 64n) return failure(400);
  const todo = state.todos.get(BigInt(id));
  if (todo === undefined) return failure(404);
  if (method === "GET") return json(200, write(todo));
  if (method === "PATCH") return update(todo, body, state);
  if (method !== "DELETE") return failure(405);
  state.todos.delete(todo.id);
  return new Response(null, { status: 204 });
}

function create(body: string, state: State): Response {
  const title = member(parseJson(body), "title");
  if (typeof title !== "string") return failure(400);
  const blank = title.trim() === "" ? ["must not be empty"] : [];
  const long = [...title].length > 120 ? ["must be at most 120 characters"] : [];
  const errors = [...blank, ...long].map((message) => ({ field: "title", message }));
  return errors.length > 0 ? failure(422, errors) : store(title, state);
}

function update(todo: Todo, body: string, state: State): Response {
  const done = member(parseJson(body), "done");
  if (typeof done !== "boolean") return failure(400);
  const changed = { ...todo, done };
  state.todos.set(todo.id, changed);
  return json(200, write(changed));
}

/** Stores a title without judging it, and answers as POST does. */
export function store(title: string, state: State, id = state.last + 1n): Response {
  state.last = id;
  const todo = { id, title, done: false };
  state.todos.set(id, todo);
  return json(201, write(todo));
}

export function write({ id, title, done }: Todo): string {
  return `{"id":${id},"title":${JSON.stringify(title)},"done":${done}}`;
}

export function json(status: number, text: string): Response {
  return new Response(text, { status, headers: { "content-type": "application/json" } });
}

export function failure(status: number, errors: Json = []): Response {
  const headers = { "content-type": "application/problem+json" };
  return new Response(JSON.stringify({ title: "Not so", status, errors }), { status, headers });
}

function refuse(scheme: string): Response {
  return new Response(null, { status: 401, headers: { "www-authenticate": `${scheme} realm="test"` } });
}

/** Serves a handler on a free port of this machine for as long as `use` takes. */
export async function serving<T>(
  handler: Handler,
  state: State,
  use: (base: string) => Promise<T>,
): Promise<T> {
  await using server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { method, headers } = request;
      const path = new URL(request.url).pathname;
      const authorization = headers.get("authorization") ?? "";
      return handler({ method, path, body: await request.text(), authorization }, state);
    },
  });
  return await use(server.url.href);
}
