import { setImmediate } from "node:timers/promises";
import {
  createMcpHandler,
  INVALID_REQUEST,
  isLegacyRequest,
  PARSE_ERROR,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { ServiceError } from "../error.ts";
import { TodoApi, type TodoApiOptions } from "../sdk/client.ts";
import { createTodoServer } from "./server.ts";

/** The maximum number of members and elements in a message, at any depth. 100 to-dos with idempotency keys have 300. */
const MAX_VALUES = 400;

/**
 * Creates the handler of `/mcp`, which offers the to-dos to assistants (Model Context Protocol, Streamable HTTP). It keeps
 * nothing between two requests, so every replica can answer each of them. It does not report changes of the to-dos.
 * Clients show the version of the program.
 * @example
 * ```ts
 * import { createService } from "todo-service";
 * import { createMcpEndpoint } from "todo-service/mcp";
 * import { openMemory } from "todo-service/memory";
 *
 * const service = createService({ store: openMemory(), mcp: createMcpEndpoint({ version: "1.0.0" }) });
 * ```
 */
export function createMcpEndpoint({ version }: { readonly version: string }) {
  return async (
    request: Request,
    readBody: () => Promise<unknown>,
    fetch: NonNullable<TodoApiOptions["fetch"]>,
  ): Promise<Response> => {
    let body: unknown;
    try {
      body = await readBody();
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === "invalid_json")) throw error;
      return errorResponse(PARSE_ERROR, `Parse error: ${error.message}`);
    }
    if (Array.isArray(body))
      return errorResponse(INVALID_REQUEST, "Batches are not supported: send one message");
    if (hasTooManyValues(body)) {
      const detail = `at most ${MAX_VALUES} members of objects and elements of arrays`;
      return errorResponse(INVALID_REQUEST, `The message is too complex: send ${detail}`);
    }
    // Without retries, because the caller can repeat the request.
    const baseUrl = getBaseUrl(request);
    const todos = new TodoApi({
      baseUrl,
      retries: 0,
      fetch: async (url, init) => {
        // Lets other requests run: with a store in memory, the up to 100 requests of a tool would all run in one turn.
        await setImmediate();
        return fetch(url, init);
      },
    });
    let internalError: unknown;
    const onInternalError = (error: unknown): void => {
      internalError = error;
    };
    const create = (): Server => createTodoServer({ todos, version, onInternalError });
    // Without the signal of the request: a write that has started finishes although its sender has left.
    const headers = new Headers(request.headers);
    // The SDK demands both types, but every response can be JSON.
    if (acceptsJson(headers.get("accept"))) headers.set("Accept", "application/json, text/event-stream");
    const detached = new Request(`${baseUrl}/mcp`, { method: "POST", headers });
    let reported: unknown;
    const onerror = (error: unknown): void => {
      reported = error;
    };
    const response = (await isLegacyRequest(detached, body))
      ? await answerLegacy(create(), detached, body)
      : await createMcpHandler(create, { legacy: "reject", onerror }).fetch(detached, { parsedBody: body });
    if (internalError === undefined && response.status < 500) return response;
    throw new ServiceError("internal_error", { cause: internalError ?? reported });
  };
}

/** Returns the origin of a request. Its URL is invalid if its `Host` is missing or invalid, which is not an error here. */
function getBaseUrl({ url }: Request): string {
  if (URL.canParse(url)) return new URL(url).origin;
  return url.startsWith("https:") ? "https://localhost" : "http://localhost";
}

/** Returns whether the value of an `Accept` header allows JSON (RFC 9110 §12.5.1). */
const acceptsJson = (accept: string | null): boolean =>
  accept === null || /(?:^|[\s,])(?:\*\/\*|application\/(?:\*|json))\s*(?:[;,]|$)/i.test(accept);

/**
 * Whether a message has more than MAX_VALUES values. The SDK checks every value several times and reports each wrong one,
 * so 64 KiB of small values take 200 ms and get a response of 8 MB.
 */
function hasTooManyValues(message: unknown): boolean {
  const values: unknown[] = [message];
  for (const value of values)
    if (typeof value === "object" && value !== null)
      for (const name in value) {
        if (values.length > MAX_VALUES) return true;
        values.push(Reflect.get(value, name));
      }
  return false;
}

/** Answers a client of a version before 2026-07-28. The SDK's handler would answer as an event stream. */
async function answerLegacy(server: Server, request: Request, parsedBody: unknown): Promise<Response> {
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport);
  try {
    return await transport.handleRequest(request, { parsedBody });
  } finally {
    await server.close();
  }
}

/** Returns an error that belongs to no request. JSON-RPC 2.0 §5 asks for the id `null` then. */
function errorResponse(code: number, message: string): Response {
  return Response.json({ jsonrpc: "2.0", error: { code, message }, id: null }, { status: 400 });
}
