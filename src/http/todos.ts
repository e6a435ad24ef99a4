import { Failure } from "../failure.ts";
import {
  type Awaitable,
  formatPosition,
  type ListQuery,
  type Position,
  parseNewTodo,
  parsePatch,
  parseTodoId,
  type TodoId,
  type TodoJson,
  type TodoList,
  type TodoStore,
} from "../todo.ts";
import { readJson } from "./body.ts";
import { oneAtATime, readIdempotencyKey } from "./idempotency.ts";
import type { Log } from "./log.ts";
import { created, json, noContent, reply, wholeList } from "./reply.ts";
import type { Handler, Peer, RoutedRequest } from "./route.ts";
import { streamed } from "./stream.ts";

const MAX_LIMIT = 1000;
const LONG_LIST_QUIET_SECONDS = 120;

/** The handlers of `/api/todos` and `/api/todos/:id`. */
export function todoHandlers(store: TodoStore, log: Log) {
  const once = oneAtATime();
  const cutOff = (error: unknown): void => log.error({ err: error }, "list cut off");

  return {
    list: (request, peer) => {
      const query = parseListQuery(request.url);
      const seen = request.headers.get("if-none-match");
      return seen === null ? listNow(request, peer, query) : listUnlessSeen(request, peer, query, seen);
    },

    create: (request) => {
      const idempotencyKey = readIdempotencyKey(request.headers);
      if (idempotencyKey === undefined) return create(request);
      return once(idempotencyKey, () => create(request, idempotencyKey));
    },

    get: (request) => {
      const found = store.get(idOf(request));
      return found instanceof Promise ? found.then(todoReply) : todoReply(found);
    },

    update: async (request) => {
      const id = idOf(request);
      const { done } = await readPatch(request, id);
      return todoReply(await store.setDone(id, done));
    },

    delete: async (request) => {
      if (!(await store.delete(idOf(request)))) throw notFound();
      return noContent();
    },
  } satisfies Record<string, Handler>;

  async function create(request: Request, idempotencyKey?: string): Promise<Response> {
    const { title } = parseNewTodo(await readJson(request));
    const todo = await store.insert(title, idempotencyKey);
    return created(todo.json, `/api/todos/${todo.id}`);
  }

  async function listUnlessSeen(request: Request, peer: Peer, query: ListQuery, seen: string) {
    const position = await store.position();
    return isSeen(seen, position) ? reply(304, listHeaders(position)) : listNow(request, peer, query);
  }

  function listNow(request: Request, peer: Peer, query: ListQuery): Awaitable<Response> {
    const answer = (list: TodoList): Response => {
      if (isOnePiece(list.json) && list.next === undefined)
        return wholeList(list.json, etagOf(list.position));
      // A slow reader of a long list takes nothing for a while when it drains what the kernel holds for it.
      if (!isOnePiece(list.json)) peer.timeout(request, LONG_LIST_QUIET_SECONDS);
      return listReply(query, list, cutOff);
    };
    const list = store.list(query);
    return list instanceof Promise ? list.then(answer) : answer(list);
  }

  /** An absent to-do wins over a bad body; only a bad body has to look. */
  async function readPatch(request: Request, id: TodoId) {
    try {
      return parsePatch(await readJson(request));
    } catch (error) {
      if ((await store.get(id)) === undefined) throw notFound();
      throw error;
    }
  }
}

function todoReply(found: TodoJson | undefined): Response {
  if (found === undefined) throw notFound();
  return json(found);
}

const notFound = (): Failure => new Failure("todo_not_found");

function idOf(request: RoutedRequest): TodoId {
  const id = parseTodoId(request.params.id ?? "");
  if (id === undefined) {
    throw new Failure("invalid_id", { detail: "An id is decimal digits, at most 18446744073709551615." });
  }
  return id;
}

function listReply(query: ListQuery, list: TodoList, onError: (error: unknown) => void): Response {
  const headers = listHeaders(list.position);
  if (list.next !== undefined) headers.Link = `<${nextPage(query, list.next)}>; rel="next"`;
  headers["Content-Type"] = "application/json";
  const { json } = list;
  return reply(200, headers, isOnePiece(json) ? json : streamed(json, onError));
}

const isOnePiece = (json: TodoList["json"]): json is TodoJson =>
  typeof json === "string" || json instanceof Uint8Array;

function listHeaders(position: Position): Record<string, string> {
  return { ETag: etagOf(position), "Cache-Control": "no-cache" };
}

const etagOf = (position: Position): string => `"${formatPosition(position)}"`;

/** Whether If-None-Match names what the store shows now (RFC 9110 §13.1.2, weak comparison). */
function isSeen(ifNoneMatch: string, position: Position): boolean {
  const etag = etagOf(position);
  return ifNoneMatch.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag);
}

/** Reads `?limit=`, `?after=` and `?done=`; throws `invalid_query` for a bad or repeated value. */
function parseListQuery(url: string): ListQuery {
  const start = url.indexOf("?");
  if (start < 0) return {};
  const parameters = new URLSearchParams(url.slice(start));
  const one = <T>(name: string, parse: (value: string) => T | undefined, expected: string): T | undefined => {
    const values = parameters.getAll(name);
    if (values.length === 0) return undefined;
    const value = values.length === 1 ? parse(values[0] ?? "") : undefined;
    if (value === undefined)
      throw new Failure("invalid_query", { detail: `${name} must be, once, ${expected}.` });
    return value;
  };
  const limit = one("limit", parseLimit, `a number from 1 to ${MAX_LIMIT}`);
  const after = one("after", parseTodoId, "an id");
  const done = one("done", parseBoolean, "true or false");
  return {
    ...(limit !== undefined && { limit }),
    ...(after !== undefined && { after }),
    ...(done !== undefined && { done }),
  };
}

function parseLimit(text: string): number | undefined {
  const limit = /^\d+$/.test(text) ? Number(text) : 0;
  return limit >= 1 && limit <= MAX_LIMIT ? limit : undefined;
}

function parseBoolean(text: string): boolean | undefined {
  return text === "true" ? true : text === "false" ? false : undefined;
}

function nextPage({ limit, done }: ListQuery, after: TodoId): string {
  const state = done === undefined ? "" : `&done=${done}`;
  return `/api/todos?limit=${limit}&after=${after}${state}`;
}
