import type { Context } from "../context.ts";
import { secure } from "../response.ts";
import type { Handler, HttpServer, RoutedRequest } from "../route.ts";

/**
 * Returns the response to one POST of the Model Context Protocol. `createMcpEndpoint` of `todo-service/mcp` makes one.
 * @param readBody reads the JSON body, and rejects with a ServiceError
 * @param fetch sends a request to the service's own handlers in the name of the sender
 */
export type McpEndpoint = (
  request: Request,
  readBody: () => Promise<unknown>,
  fetch: (url: string, init: RequestInit) => Promise<Response>,
) => Promise<Response>;

/** The headers of the POST that describe its own body. A tool's request has a body and an idempotency key of its own. */
const OWN_HEADERS = [
  ...["accept", "content-encoding", "content-length", "content-type", "transfer-encoding"],
  ...["idempotency-key", "if-none-match"],
];

const TODO_PATH = /^\/api\/todos\/([^/]+)$/;

/**
 * Returns the handler of POST `/mcp`. Each tool call passes all checks of the service again, as a request of the same sender
 * to `/api/todos`. So scopes, limits, logs and metrics apply.
 * @param getHandler returns the handler of a path pattern with all its checks
 */
export function createMcpHandler(
  endpoint: McpEndpoint,
  { bodies, origins }: Context,
  getHandler: (path: string) => Handler,
): Handler {
  return async (request, server) => {
    origins.requireKnownOrigin(request);
    const readBody = () => bodies.readJson(request, server, (body) => body);
    return secure(await endpoint(request, readBody, createFetch(request, server, getHandler)));
  };
}

/** Returns a function that sends requests to the handlers, with the credentials and the connection of another request. */
function createFetch(outer: RoutedRequest, outerServer: HttpServer, getHandler: (path: string) => Handler) {
  // Now, because the runtime forgets the address when the sender leaves, and the write that it has started must finish.
  const address = outerServer.requestIP(outer);
  const server: HttpServer = {
    protocol: outerServer.protocol,
    requestIP: () => address,
    timeout: (_request, seconds) => outerServer.timeout(outer, seconds),
  };
  return async (
    url: string,
    { method = "GET", headers: own, body = null }: RequestInit,
  ): Promise<Response> => {
    const headers = new Headers(outer.headers);
    for (const name of OWN_HEADERS) headers.delete(name);
    new Headers(own).forEach((value, name) => {
      headers.set(name, value);
    });
    const id = TODO_PATH.exec(new URL(url).pathname)?.[1];
    const params = id === undefined ? {} : { id: decodeURIComponent(id) };
    const inner = Object.assign(new Request(url, { method, headers, body }), { params });
    return getHandler(id === undefined ? "/api/todos" : "/api/todos/:id")(inner, server);
  };
}
