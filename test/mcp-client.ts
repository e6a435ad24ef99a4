import { collect, ROOT } from "./command.ts";
import { until } from "./until.ts";

/** The protocol versions that the tests speak, oldest first. */
export const PROTOCOL_VERSIONS = [
  "2024-11-05",
  "2025-03-26",
  "2025-06-18",
  "2025-11-25",
  "2026-07-28",
] as const;
export type ProtocolVersion = (typeof PROTOCOL_VERSIONS)[number];
/** From this version on, each request carries its version, and no handshake precedes it. */
export const isModern = (version: ProtocolVersion): boolean => version >= "2026-07-28";

const CLIENT_INFO = { name: "test", version: "1" };
const META = "io.modelcontextprotocol/";

export interface Message {
  readonly jsonrpc?: string;
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

export interface ToolResult {
  readonly isError: boolean;
  readonly structured: unknown;
  readonly text: unknown;
}

export interface McpClient extends AsyncDisposable {
  readonly request: (method: string, params?: object) => Promise<Message>;
}

/** Calls a tool. Throws if the response is a protocol error. */
export async function callTool(client: McpClient, name: string, given: object = {}): Promise<ToolResult> {
  const { result, error } = await client.request("tools/call", { name, arguments: given });
  if (result === undefined) throw new Error(`${name}: ${error?.message}`);
  const content: readonly { text: string }[] = JSON.parse(JSON.stringify(result.content));
  const [{ text } = { text: "null" }] = content;
  return { isError: result.isError === true, structured: result.structuredContent, text: JSON.parse(text) };
}

/** Returns the parameters of a request as a version demands them. */
export function withMeta(version: ProtocolVersion, params: object): object {
  if (!isModern(version)) return params;
  const _meta = {
    [`${META}protocolVersion`]: version,
    [`${META}clientInfo`]: CLIENT_INFO,
    [`${META}clientCapabilities`]: {},
  };
  return { ...params, _meta };
}

const initialize = (version: string): object => ({
  protocolVersion: version,
  capabilities: {},
  clientInfo: CLIENT_INFO,
});

/** Learns what the server offers, as a client of this version does first. */
async function handshake(client: McpClient, version: ProtocolVersion): Promise<Message> {
  if (isModern(version)) return client.request("server/discover");
  return client.request("initialize", initialize(version));
}

export interface StdioServer extends AsyncDisposable {
  readonly write: (text: string | Uint8Array) => void;
  /** Closes standard input. Resolves with the exit code. */
  readonly end: () => Promise<number>;
  /** Every line of standard output as a message. Throws unless each is a message of JSON-RPC 2.0. */
  readonly messages: () => Message[];
  readonly stderr: () => string;
  /** Returns the first message that matches, as soon as it has arrived. */
  readonly next: (what: string, matches: (message: Message) => boolean) => Promise<Message>;
}

export function startStdioServer(
  variables: Readonly<Record<string, string>>,
  commandLine: readonly string[] = ["bin/todo", "mcp"],
): StdioServer {
  const { PATH = "", HOME = "" } = process.env;
  const child = Bun.spawn([...commandLine], {
    cwd: ROOT,
    env: { PATH, HOME, ...variables },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [output, errors] = [collect(child.stdout), collect(child.stderr)];
  const messages = (): Message[] =>
    output
      .text()
      .split("\n")
      .slice(0, -1)
      .map((line) => {
        const message: Message = JSON.parse(line);
        if (message.jsonrpc !== "2.0") throw new Error(`not a message: ${line}`);
        return message;
      });
  return {
    write: (text) => {
      child.stdin.write(text);
      child.stdin.flush();
    },
    end: async () => {
      await child.stdin.end();
      await Promise.all([output.done, errors.done]);
      return child.exited;
    },
    messages,
    stderr: errors.text,
    next: async (what, matches) => {
      let found: Message | undefined;
      await until(() => {
        if (child.exitCode !== null) throw new Error(`the server has exited: ${errors.text()}`);
        found = messages().find(matches);
        return found !== undefined;
      }, what);
      return found ?? {};
    },
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

export interface StdioClient extends McpClient {
  readonly server: StdioServer;
  readonly offer: Message;
  /** Sends a message without waiting for a response. Returns the id of a request. */
  readonly send: (method: string, params?: object) => number;
}

export async function startStdioClient(
  version: ProtocolVersion,
  variables: Readonly<Record<string, string>>,
  commandLine?: readonly string[],
): Promise<StdioClient> {
  const server = startStdioServer(variables, commandLine);
  let lastId = 0;
  const send = (method: string, params: object = {}): number => {
    const id = ++lastId;
    const isNotification = method.startsWith("notifications/");
    const message = {
      jsonrpc: "2.0",
      ...(!isNotification && { id }),
      method,
      params: withMeta(version, params),
    };
    server.write(`${JSON.stringify(message)}\n`);
    return id;
  };
  const request = (method: string, params?: object): Promise<Message> => {
    const id = send(method, params);
    return server.next(`the response to ${method}`, (message) => message.id === id);
  };
  const client = { server, send, request, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
  const offer = await handshake(client, version);
  if (!isModern(version)) send("notifications/initialized");
  return { ...client, offer };
}

export function mcpHeaders(
  version: ProtocolVersion,
  method: string,
  params: object = {},
): Record<string, string> {
  const name = "name" in params ? params.name : "uri" in params ? params.uri : undefined;
  return {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    ...(method !== "initialize" && { "MCP-Protocol-Version": version }),
    ...(isModern(version) && { "Mcp-Method": method }),
    ...(isModern(version) && typeof name === "string" && { "Mcp-Name": name }),
  };
}

export interface HttpClient extends McpClient {
  readonly offer: Message;
  readonly post: (method: string, params?: object, headers?: Record<string, string>) => Promise<Response>;
}

export function mcpSender(
  version: ProtocolVersion,
  url: string,
  ownHeaders: Record<string, string> = {},
): HttpClient["post"] {
  let lastId = 0;
  return (method, params = {}, headers = {}) => {
    const body = { jsonrpc: "2.0", id: ++lastId, method, params: withMeta(version, params) };
    return fetch(url, {
      method: "POST",
      headers: { ...mcpHeaders(version, method, params), ...ownHeaders, ...headers },
      body: JSON.stringify(body),
    });
  };
}

/** Connects a client of this version to a URL such as `http://127.0.0.1:3000/mcp`. */
export async function connectHttpClient(
  version: ProtocolVersion,
  url: string,
  headers: Record<string, string> = {},
): Promise<HttpClient> {
  const post = mcpSender(version, url, headers);
  const request = async (method: string, params?: object): Promise<Message> => {
    const response = await post(method, params);
    const text = await response.text();
    if (response.headers.get("content-type") !== "application/json")
      throw new Error(`${method}: ${response.status} ${text}`);
    const message: Message = JSON.parse(text);
    return message;
  };
  const client = { post, request, [Symbol.asyncDispose]: async () => {} };
  return { ...client, offer: await handshake(client, version) };
}
