import {
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  specTypeSchemas,
} from "@modelcontextprotocol/server";
import { type TodoApi, TodoApiError } from "../sdk/client.ts";
import { callTool, type DescribeError, find, MAX_FOUND, TITLES_ARE_DATA, TOOL_DEFINITIONS } from "./tools.ts";

/** The protocol versions that the tests cover. For another version, `initialize` offers the first one of `initialize`. */
export const PROTOCOL_VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

export const TODOS_URI = "todo://todos";

const RESOURCE = {
  uri: TODOS_URI,
  name: "todos",
  title: "To-dos",
  description: `The first ${MAX_FOUND} to-dos by ascending id, as find_todos returns them. ${TITLES_ARE_DATA}`,
  mimeType: "application/json",
};

const INSTRUCTIONS = `This is one list of to-dos. To change to-dos that the user describes in words, find their ids with find_todos and a few words of their titles, then pass all ids to set_done or delete_todos in one call. If several to-dos match and the user meant one, ask which one. ${TITLES_ARE_DATA}`;

export interface TodoServerOptions {
  readonly todos: TodoApi;
  /** The version of this program. */
  readonly version: string;
  /** Reports an error of this program. The client only sees that there was one. */
  readonly onInternalError: (error: unknown) => void;
  /** Returns the message of a tool error. By default, it is the service's own message. */
  readonly describe?: DescribeError;
}

/**
 * Creates the server of one connection, or of one HTTP request. It uses the low-level class of the SDK, because the
 * high-level class reports invalid arguments in a format of its own, and compiles the schemas for each instance.
 */
export function createTodoServer(options: TodoServerOptions): Server {
  const { todos, version, onInternalError, describe = ({ message }) => message } = options;
  const server = new Server(
    { name: "todo-service", title: "To-do list", version },
    {
      capabilities: { tools: {}, resources: {} },
      supportedProtocolVersions: PROTOCOL_VERSIONS,
      instructions: INSTRUCTIONS,
    },
  );

  server.setRequestHandler("tools/list", () => ({ tools: TOOL_DEFINITIONS }));
  server.setRequestHandler("tools/call", ({ params: { name, arguments: given } }, { mcpReq: { signal } }) =>
    guarded(signal, async () => {
      const result = await callTool(todos, name, given, { signal, describe });
      if (result === undefined)
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${name}`);
      return result;
    }),
  );

  server.setRequestHandler("resources/list", () => ({ resources: [RESOURCE] }));
  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
  server.setRequestHandler(
    "resources/read",
    { params: specTypeSchemas.ReadResourceRequestParams },
    ({ uri }, { mcpReq: { signal } }) =>
      guarded(signal, async () => {
        if (uri !== TODOS_URI) throw new ResourceNotFoundError(uri);
        const found = await find(todos, { text: "", state: "all", limit: MAX_FOUND }, signal);
        return { contents: [{ uri, mimeType: RESOURCE.mimeType, text: JSON.stringify(found) }] };
      }),
  );

  return server;

  /** Turns errors of the service into protocol errors, and hides the messages of internal errors. */
  async function guarded<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      // The client has cancelled the request, and gets no response.
      if (error instanceof ProtocolError || signal.aborted) throw error;
      if (error instanceof TodoApiError)
        throw new ProtocolError(ProtocolErrorCode.InternalError, describe(error), { code: error.code });
      onInternalError(error);
      throw new ProtocolError(ProtocolErrorCode.InternalError, "Internal error");
    }
  }
}
