/** A minimal server that follows the specification. The kit's tests check it unchanged and with one fault at a time. */
import { type Json, ownProperty, parseJson } from "./json.ts";

/** The parts of a request that a handler reads. */
export interface ParsedRequest {
  readonly method: string;
  readonly path: string;
  readonly search: string;
  readonly body: string;
  /** The body as it arrived. */
  readonly parts: readonly Uint8Array[];
  readonly authorization: string;
  readonly headers: Headers;
}

export interface Todo {
  readonly id: bigint;
  readonly title: string;
  readonly done: boolean;
}

export interface State {
  readonly todos: Map<bigint, Todo>;
  lastId: bigint;
}

export type Handler = (request: ParsedRequest, state: State) => Response | Promise<Response>;

export const token = "Reference-Token-1";
/** A password of more than 72 bytes with a colon and a character outside ASCII. */
export const user = { name: "ann", password: `é: ${"open ".repeat(14)}sesame` };
export const clientName = "demo";

const bearer = `Bearer ${token}`;
const basic = `Basic ${Buffer.from(`${user.name}:${user.password}`).toString("base64")}`;

export function handleRequest({ method, path, body, authorization }: ParsedRequest, state: State): Response {
  if (path === "/admin/")
    return authorization === basic ? new Response(`Hello, ${user.name}!`) : unauthorized("Basic");
  if (path === "/api/whoami")
    return authorization === bearer ? new Response(clientName) : unauthorized("Bearer");
  if (path === "/api/todos") {
    if (method === "GET") return json(200, `[${[...state.todos.values()].map(serialize).join()}]`);
    return method === "POST" ? create(body, state) : problem(405);
  }
  const id = /^\/api\/todos\/([^/]+)$/.exec(path)?.[1];
  if (id === undefined) return problem(404);
  if (!/^\d+$/.test(id) || BigInt(id) >= 2n ** 64n) return problem(400);
  const todo = state.todos.get(BigInt(id));
  if (todo === undefined) return problem(404);
  if (method === "GET") return json(200, serialize(todo));
  if (method === "PATCH") return update(todo, body, state);
  if (method !== "DELETE") return problem(405);
  state.todos.delete(todo.id);
  return new Response(null, { status: 204 });
}

function create(body: string, state: State): Response {
  const title = ownProperty(parseJson(body), "title");
  if (typeof title !== "string") return problem(400);
  const blank = title.trim() === "" ? ["must not be empty"] : [];
  const long = [...title].length > 120 ? ["must be at most 120 characters"] : [];
  const errors = [...blank, ...long].map((message) => ({ field: "title", message }));
  return errors.length > 0 ? problem(422, errors) : storeTodo(title, state);
}

function update(todo: Todo, body: string, state: State): Response {
  const done = ownProperty(parseJson(body), "done");
  if (typeof done !== "boolean") return problem(400);
  const updated = { ...todo, done };
  state.todos.set(todo.id, updated);
  return json(200, serialize(updated));
}

/** Stores a to-do without validating its title. Returns the response of a valid POST. */
export function storeTodo(title: string, state: State, id = state.lastId + 1n): Response {
  state.lastId = id;
  const todo = { id, title, done: false };
  state.todos.set(id, todo);
  return json(201, serialize(todo));
}

/** Serializes a to-do as JSON. */
export function serialize({ id, title, done }: Todo): string {
  return `{"id":${id},"title":${JSON.stringify(title)},"done":${done}}`;
}

export function json(status: number, text: string): Response {
  return new Response(text, { status, headers: { "content-type": "application/json" } });
}

/** Returns a problem document (RFC 9457). */
export function problem(status: number, errors: Json = []): Response {
  const headers = { "content-type": "application/problem+json" };
  return new Response(JSON.stringify({ title: "Invalid request", status, errors }), { status, headers });
}

function unauthorized(scheme: string): Response {
  return new Response(null, { status: 401, headers: { "www-authenticate": `${scheme} realm="test"` } });
}

/** Serves a handler on a free loopback port until `use` settles. */
export async function withServer<T>(
  handler: Handler,
  state: State,
  use: (baseUrl: string) => Promise<T>,
): Promise<T> {
  await using server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { method, headers } = request;
      const { pathname: path, search } = new URL(request.url);
      const authorization = headers.get("authorization") ?? "";
      const parts = await Array.fromAsync(request.body ?? []);
      const body = Buffer.concat(parts).toString();
      return handler({ method, path, search, body, parts, authorization, headers }, state);
    },
  });
  return await use(server.url.href);
}
