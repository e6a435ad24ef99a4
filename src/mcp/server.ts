import { ProtocolError, ProtocolErrorCode, Server } from "@modelcontextprotocol/server";
import { callTool, type DescribeError, TITLES_ARE_DATA, TOOL_DEFINITIONS, type Todos } from "./tools.ts";

/** The protocol versions that the tests cover. For another version, `initialize` offers the first one of `initialize`. */
export const PROTOCOL_VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const INSTRUCTIONS = `This is one list of to-dos. To change to-dos that the user describes in words, find their ids with find_todos and a few words of their titles, then pass all ids to set_done or delete_todos in one call. If several to-dos match and the user meant one, ask which one. ${TITLES_ARE_DATA}`;

export interface TodoServerOptions {
  readonly todos: Todos;
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
      capabilities: { tools: {} },
      supportedProtocolVersions: PROTOCOL_VERSIONS,
      instructions: INSTRUCTIONS,
    },
  );

  server.setRequestHandler("tools/list", () => ({ tools: TOOL_DEFINITIONS }));
  server.setRequestHandler("tools/call", async ({ params }, { mcpReq: { signal } }) => {
    try {
      const result = await callTool(todos, params.name, params.arguments, { signal, describe });
      if (result !== undefined) return result;
    } catch (error) {
      // The client has cancelled the request, and gets no response.
      if (signal.aborted) throw error;
      onInternalError(error);
      throw new ProtocolError(ProtocolErrorCode.InternalError, "Internal error");
    }
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${params.name}`);
  });
  return server;
}
