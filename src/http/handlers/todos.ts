import { type Awaitable, chain } from "../../awaitable.ts";
import { ServiceError } from "../../error.ts";
import {
  formatPosition,
  type ListQuery,
  type Position,
  parseNewTodo,
  parsePatch,
  parseTodoId,
  type TodoId,
  type TodoJson,
  type TodoList,
} from "../../todo.ts";
import type { Context } from "../context.ts";
import { matchesEtag, readIdempotencyKey, readParameter, storedIdempotencyKey } from "../request.ts";
import { changed, created, deleted, json, list, respond, TODO_POSITION } from "../response.ts";
import type { Handler, HttpServer, RoutedRequest } from "../route.ts";
import { toReadableStream } from "../stream.ts";
import { isUnfinished } from "../unfinished-bodies.ts";

const MAX_LIMIT = 1000;
const LONG_LIST_IDLE_SECONDS = 120;
/**
 * Over TLS, the maximum size of a list sent as a Blob, and of a chunk of a longer list. Otherwise an HTTP/2 client that
 * reads nothing on hundreds of streams would keep as many Blobs, because each write creates a new one.
 */
const TLS_CHUNK_BYTES = 16 * 1024;

/** Returns the handlers of `/api/todos` and `/api/todos/:id`. */
export function createTodoHandlers({ store, bodies, origins, log, limiter }: Context) {
  const logError = limiter.topic((fields) => log.error(fields, "list response aborted"));
  const onStreamError = (err: unknown): void => logError("", { err });

  return {
    list: (request, server) => {
      const query = parseListQuery(request.url);
      const seen = request.headers.get("if-none-match");
      return seen === null ? listNow(request, server, query) : listIfModified(request, server, query, seen);
    },

    create: (request, server, identity) => {
      origins.requireSameSite(request);
      const sent = readIdempotencyKey(request.headers);
      const idempotencyKey = sent === undefined ? undefined : storedIdempotencyKey(sent, identity);
      return bodies
        .readJson(request, server, parseNewTodo)
        .then(({ title }) =>
          chain(store.insert(title, idempotencyKey), ({ id, json, position }) =>
            created(json, `todos/${id}`, formatPosition(position)),
          ),
        );
    },

    get: (request) => chain(store.get(requireId(request)), todoReply),

    update: (request, server) => {
      origins.requireSameSite(request);
      const id = requireId(request);
      return bodies.readJson(request, server, parsePatch).then(
        ({ done }) =>
          chain(store.setDone(id, done), ({ json, position }) => {
            if (json === undefined) throw notFound(position);
            return changed(json, formatPosition(position));
          }),
        (error) => rejectPatch(id, error),
      );
    },

    delete: (request) => {
      origins.requireSameSite(request);
      return chain(store.delete(requireId(request)), ({ existed, position }) => {
        if (!existed) throw notFound(position);
        return deleted(formatPosition(position));
      });
    },
  } satisfies Record<string, Handler>;

  async function listIfModified(request: Request, server: HttpServer, query: ListQuery, seen: string) {
    const position = formatPosition(await store.position());
    const etag = `"${position}"`;
    return matchesEtag(seen, etag)
      ? respond(304, { ETag: etag, [TODO_POSITION]: position, "Cache-Control": "no-cache" })
      : listNow(request, server, query);
  }

  function listNow(request: Request, server: HttpServer, query: ListQuery): Awaitable<Response> {
    const chunkBytes = server.protocol === "https" ? TLS_CHUNK_BYTES : undefined;
    const answer = ({ json, position: listedAt, next }: TodoList): Response => {
      const position = formatPosition(listedAt);
      const link = next === undefined ? undefined : `<${nextPage(query, next)}>; rel="next"`;
      if (json instanceof Uint8Array || json instanceof Blob) return list(json, position, link);
      // A slow client of a long list reads nothing from the server while it empties the kernel's buffers.
      server.timeout(request, LONG_LIST_IDLE_SECONDS);
      return list(toReadableStream(json, onStreamError, chunkBytes), position, link);
    };
    return chain(store.list(query, chunkBytes), answer);
  }

  /** If both the id and a complete body are wrong, reports the absent to-do. */
  async function rejectPatch(id: TodoId, error: unknown): Promise<never> {
    if (!isUnfinished(error) && (await store.get(id)) === undefined) throw notFound();
    throw error;
  }
}

function todoReply(found: TodoJson | undefined): Response {
  if (found === undefined) throw notFound();
  return json(found);
}

/** @param position where a write found that the to-do does not exist */
const notFound = (position?: Position): ServiceError =>
  new ServiceError("todo_not_found", position && { headers: { [TODO_POSITION]: formatPosition(position) } });

function requireId(request: RoutedRequest): TodoId {
  const id = parseTodoId(request.params.id ?? "");
  if (id === undefined) {
    throw new ServiceError("invalid_id", {
      detail: "An id is decimal digits, at most 18446744073709551615.",
    });
  }
  return id;
}

/** Returns the values of `?limit=`, `?after=` and `?done=`. Throws `invalid_query` for a bad or repeated value. */
function parseListQuery(url: string): ListQuery {
  const start = url.indexOf("?");
  if (start < 0) return {};
  const query = new URLSearchParams(url.slice(start));
  return {
    limit: readParameter(query, "limit", parseLimit, `a number from 1 to ${MAX_LIMIT}`),
    after: readParameter(query, "after", parseTodoId, "an id"),
    done: readParameter(query, "done", parseBoolean, "true or false"),
  };
}

function parseLimit(text: string): number | undefined {
  const limit = /^\d+$/.test(text) ? Number(text) : 0;
  return limit >= 1 && limit <= MAX_LIMIT ? limit : undefined;
}

const parseBoolean = (text: string): boolean | undefined =>
  text === "true" ? true : text === "false" ? false : undefined;

/** Returns the address of the next page, relative to this one, because a proxy may add a prefix to the path. */
function nextPage({ limit, done }: ListQuery, after: TodoId): string {
  const state = done === undefined ? "" : `&done=${done}`;
  return `todos?limit=${limit}&after=${after}${state}`;
}
