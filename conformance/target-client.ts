/** HTTP client for the server under test: sends requests with a time limit and captures the responses. */
import { connect as connectPlain } from "node:net";
import { connect as connectTls } from "node:tls";
import type { RuleId } from "./rules.ts";

/** JSON whose integers are bigint, so that ids above 2^53 stay exact (section 2: unsigned 64-bit). */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** Parses a JSON text. Returns undefined when the text is not JSON. */
export function parseJson(text: string): Json | undefined {
  const reviver = (_key: string, value: Json, context?: { source?: string }): Json => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && /^(0|-?[1-9]\d*)$/.test(source)
      ? BigInt(source)
      : value;
  };
  try {
    return JSON.parse(text, reviver);
  } catch {
    return undefined;
  }
}

/** Returns an own property of a JSON object, or undefined when it has none. */
export function ownProperty(json: Json | undefined, key: string): Json | undefined {
  const isObject = typeof json === "object" && json !== null && !Array.isArray(json);
  return isObject && Object.hasOwn(json, key) ? json[key] : undefined;
}

/** The server violates a rule. The message names the request, the expected response and the actual one. */
export class RuleViolation extends Error {
  /** The rule that this case relied on. If that rule fails too, the violation shows nothing new. */
  readonly prerequisite: RuleId | undefined;

  constructor(message: string, prerequisite?: RuleId) {
    super(message);
    this.prerequisite = prerequisite;
  }
}

/** The server sent no response, and the time limit is not the reason. */
export class UnreachableError extends RuleViolation {}

/** A response with a description of its request. The description never contains a credential. */
export class CapturedResponse {
  readonly request: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;

  constructor(request: string, status: number, headers: Headers, text: string) {
    this.request = request;
    this.status = status;
    this.headers = headers;
    this.text = text;
  }

  get contentType(): string {
    return this.headers.get("content-type") ?? "";
  }

  get json(): Json | undefined {
    return parseJson(this.text);
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** Throws a `RuleViolation` that describes the request and the response unless `condition` is true. */
  expect(condition: boolean, expected: string): void {
    if (!condition) throw this.violation(expected);
  }

  violation(expected: string, prerequisite = this.#prerequisite): RuleViolation {
    const actual = [this.status, this.contentType, truncate(this.text)]
      .filter((part) => part !== "")
      .join(" ");
    return new RuleViolation(`${this.request}: expected ${expected}, got ${actual}`, prerequisite);
  }

  /** The rule that explains this response if it fails: the routes require credentials, or the operation never works. */
  get #prerequisite(): RuleId | undefined {
    const isTodoRoute = / \/api\/todos/.test(this.request);
    if (isTodoRoute && [401, 403, 407].includes(this.status)) return "todos.open";
    return [0, 404, 405].includes(this.status) || this.status >= 500 ? ruleOf(this.request) : undefined;
  }

  expectStatus(status: number): void {
    this.expect(this.status === status, String(status));
  }

  /** Expects any client error, for a rejection whose exact status the specification does not show. */
  expect4xx(): void {
    this.expect(this.status >= 400 && this.status < 500, "a 4xx status");
  }
}

export interface Target {
  /** URL of the server without a trailing slash: `http://host:port` or `http://host:port/path`. */
  readonly baseUrl: string;
  readonly token: string;
  readonly user: { readonly name: string; readonly password: string };
  readonly clientName: string | undefined;
  readonly timeoutMs: number;
}

/** A new to-do: its id, the title of the request, and the response. */
export interface Created {
  readonly id: bigint;
  readonly title: string;
  readonly response: CapturedResponse;
}

interface RequestOptions {
  /** A value to send as JSON. */
  readonly json?: Json;
  /** A text to send unchanged with a JSON content type. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Describes the headers in the report, which never shows their values. */
  readonly note?: string;
}

/** Sends requests to the server under test. Credentials that were not given are empty. */
export class TargetClient {
  readonly target: Target;
  readonly #createdIds = new Set<bigint>();
  readonly #runId = crypto.randomUUID().slice(0, 8);
  #titleCount = 0;

  constructor(target: Target) {
    this.target = target;
  }

  /** Returns a valid title that no other to-do has. */
  uniqueTitle(): string {
    this.#titleCount += 1;
    return `conformance ${this.#runId} ${this.#titleCount}`;
  }

  async send(method: string, path: string, options: RequestOptions = {}): Promise<CapturedResponse> {
    const body = options.json === undefined ? options.body : JSON.stringify(options.json);
    const request = describeRequest(method, path, body, options.note);
    const headers = new Headers(options.headers);
    if (body !== undefined) headers.set("content-type", "application/json");
    const response = await this.#fetch(request, path, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    });
    this.#trackCreated(method, path, response);
    return response;
  }

  /** Sends the path unchanged, because fetch normalizes it, and captures every byte after the head as text. */
  sendRaw(method: string, path: string): Promise<CapturedResponse> {
    const { protocol, hostname, host, port, pathname } = new URL(this.target.baseUrl);
    const isTls = protocol === "https:";
    const head = `${method} ${pathname.replace(/\/$/, "")}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`;
    const address = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (isTls ? 443 : 80) };
    const { promise, resolve } = Promise.withResolvers<CapturedResponse>();
    const chunks: Buffer[] = [];
    const socket = isTls ? connectTls(address) : connectPlain(address);
    // Close, error and timeout all end the response: the case checks the bytes received so far.
    const finish = () => {
      socket.destroy();
      resolve(parseResponse(describeRequest(method, path), Buffer.concat(chunks).toString("latin1")));
    };
    socket.setTimeout(this.target.timeoutMs, finish);
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", finish);
    socket.on("close", finish);
    socket.write(head);
    return promise;
  }

  /** Creates a to-do. Throws a `RuleViolation` when the server does not create one. */
  async create(title = this.uniqueTitle()): Promise<Created> {
    const response = await this.send("POST", "/api/todos", { json: { title } });
    const id = readId(response);
    if (!response.ok) throw response.violation("a new to-do");
    if (id === undefined) throw response.violation("a new to-do with an id", "create.answer");
    return { id, title, response };
  }

  async createWithSameTitle(): Promise<[Created, Created, Created]> {
    const title = this.uniqueTitle();
    return [await this.create(title), await this.create(title), await this.create(title)];
  }

  /** Creates a to-do and deletes it. Returns its id. */
  async createAndDelete(): Promise<bigint> {
    const { id } = await this.create();
    await this.send("DELETE", `/api/todos/${id}`);
    return id;
  }

  /** Returns the full list. Throws a `RuleViolation` when the server does not send one. */
  async list(): Promise<{ todos: Json[]; response: CapturedResponse }> {
    const response = await this.send("GET", "/api/todos");
    const todos = response.json;
    if (!response.ok) throw response.violation("a list", "list.200");
    if (!Array.isArray(todos)) throw response.violation("a list", "list.array");
    return { todos, response };
  }

  /** Deletes the to-dos that were created since the last call and that still exist. */
  async cleanup(): Promise<void> {
    const ids = [...this.#createdIds];
    this.#createdIds.clear();
    for (const id of ids) await this.send("DELETE", `/api/todos/${id}`).catch(() => undefined);
  }

  async #fetch(request: string, path: string, init: RequestInit): Promise<CapturedResponse> {
    const signal = AbortSignal.timeout(this.target.timeoutMs);
    try {
      const response = await fetch(this.target.baseUrl + path, { ...init, redirect: "manual", signal });
      return new CapturedResponse(request, response.status, response.headers, await response.text());
    } catch (error) {
      const failure = `${request}: expected a response, got none`;
      if (signal.aborted)
        throw new RuleViolation(`${failure} within ${this.target.timeoutMs / 1000} s`, ruleOf(request));
      throw new UnreachableError(`${failure}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #trackCreated(method: string, path: string, response: CapturedResponse): void {
    if (!response.ok) return;
    const id = method === "POST" && path === "/api/todos" ? readId(response) : undefined;
    if (id !== undefined) this.#createdIds.add(id);
    const deleted = method === "DELETE" ? /^\/api\/todos\/(\d+)$/.exec(path)?.[1] : undefined;
    if (deleted !== undefined) this.#createdIds.delete(BigInt(deleted));
  }
}

/** Returns the id in a response. An id in a string violates `todo.id.type` only, so the other cases can use it. */
function readId(response: CapturedResponse): bigint | undefined {
  const id = ownProperty(response.json, "id");
  if (typeof id === "bigint") return id;
  return typeof id === "string" && /^\d+$/.test(id) ? BigInt(id) : undefined;
}

/** Returns the rule that a valid request of the same operation succeeds. */
function ruleOf(request: string): RuleId | undefined {
  return OPERATIONS.find(([operation]) => operation.test(request))?.[1];
}

const OPERATIONS: readonly [RegExp, RuleId][] = [
  [/^POST \/api\/todos( |$)/, "create.201"],
  [/^GET \/api\/todos( |$)/, "list.200"],
  [/^GET \/api\/todos\//, "get.200"],
  [/^PATCH \/api\/todos\//, "update.200"],
  [/^DELETE \/api\/todos\//, "delete.204"],
  [/^GET \/api\/whoami( |$)/, "whoami.200"],
  [/^GET \/admin\/( |$)/, "admin.200"],
];

/** Parses the bytes of an HTTP/1.1 response, given as latin1, because chunk sizes count bytes (RFC 9112, section 7.1). */
function parseResponse(request: string, bytes: string): CapturedResponse {
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(bytes)?.[1];
  const end = bytes.indexOf("\r\n\r\n");
  const head = bytes.slice(0, end);
  const rest = end === -1 ? "" : bytes.slice(end + 4);
  const body = /^transfer-encoding:.*chunked/im.test(head) ? decodeChunked(rest) : rest;
  return new CapturedResponse(
    request,
    Number(status ?? 0),
    new Headers(),
    Buffer.from(body, "latin1").toString(),
  );
}

function decodeChunked(body: string): string {
  const line = /^([0-9a-f]+).*\r\n/i.exec(body);
  const length = Number.parseInt(line?.[1] ?? "0", 16);
  if (line === null || length === 0) return "";
  const start = line[0].length;
  return body.slice(start, start + length) + decodeChunked(body.slice(start + length + 2));
}

function describeRequest(method: string, path: string, body?: string, note?: string): string {
  return [method, path, truncate(body ?? ""), note ?? ""].filter((part) => part !== "").join(" ");
}

function truncate(text: string): string {
  return text.length <= 160 ? text : `${text.slice(0, 140)}… (${text.length} characters)`;
}
