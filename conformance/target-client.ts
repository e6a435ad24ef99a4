/** HTTP client for the server under test: sends requests with a time limit and captures the responses. */
import { connect as connectPlain } from "node:net";
import { connect as connectTls } from "node:tls";
import examples from "./examples.json" with { type: "json" };
import { type Json, ownProperty, parseJson } from "./json.ts";
import type { RuleId } from "./rules.ts";

/** The server violates a rule. The message names the request, the expected response and the actual one. */
export class RuleViolation extends Error {
  /** The violated rule. For a named case, undefined means the rule of the case. */
  readonly rule: RuleId | undefined;

  constructor(message: string, rule?: RuleId) {
    super(message);
    this.rule = rule;
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
  #json: { readonly value: Json | undefined } | undefined;

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
    this.#json ??= { value: parseJson(this.text) };
    return this.#json.value;
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** Throws a `RuleViolation` that describes the request and the response unless `condition` is true. */
  expect(condition: boolean, expected: string, rule?: RuleId): void {
    if (!condition) throw this.violation(expected, rule);
  }

  violation(expected: string, rule?: RuleId): RuleViolation {
    return new RuleViolation(`${this.request}: expected ${expected}, got ${this.summary}`, rule);
  }

  /** The status, the content type and the beginning of the body. */
  get summary(): string {
    return [this.status, this.contentType, truncate(this.text)].filter((part) => part !== "").join(" ");
  }

  expectStatus(status: number): void {
    this.expect(this.status === status, String(status));
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

interface RequestOptions {
  /** A text to send unchanged with a JSON content type. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Describes the headers in the report, which never shows their values. */
  readonly note?: string;
}

/** How often a request is sent again after a 429, because the specification does not show rate limits. */
const MAX_RETRIES = 5;
const MAX_DELAY_S = 10;

/** What some clients and proxies add to a request, which must change no answer. Each request without other headers has the next one. */
const ADDED: readonly Readonly<Record<string, string>>[] = examples.headers;

/** The program was told to stop, so no further request is sent. */
export class Stopped extends Error {}

/** Sends requests to the server under test, and remembers the to-dos that it created. */
export class TargetClient {
  readonly target: Target;
  /** The number of requests so far. */
  sent = 0;
  /** What each protected route shows with valid credentials, because a server may later limit their rate. */
  readonly shown = new Map<string, string>();
  readonly #createdIds = new Set<string>();
  readonly #pending = new Set<Promise<unknown>>();
  #stopped = false;

  constructor(target: Target) {
    this.target = target;
  }

  /** Sends a request. Rejects with a `RuleViolation` when no response arrives within the time limit. */
  send(method: string, path: string, options: RequestOptions = {}): Promise<CapturedResponse> {
    if (this.#stopped) throw new Stopped();
    const response = this.#sendUntilAllowed(method, path, options);
    this.#pending.add(response);
    const settled = () => this.#pending.delete(response);
    response.then(settled, settled);
    return response;
  }

  async #sendUntilAllowed(
    method: string,
    path: string,
    { body, headers: given, note }: RequestOptions,
  ): Promise<CapturedResponse> {
    const { token, user } = this.target;
    const secrets = [token, user.password].map((secret) => encodeURIComponent(secret) || "no secret");
    const shownPath = secrets.reduce((shown, secret) => shown.replaceAll(secret, "SECRET"), path);
    const added = given === undefined ? ADDED[this.sent % ADDED.length] : {};
    const request = describeRequest(method, shownPath, body, note, added);
    const type = body === undefined ? {} : { "content-type": "application/json" };
    const headers = new Headers({ ...type, ...added, ...given });
    for (let retries = 0; ; retries += 1) {
      const response = await this.#fetch(request, path, { method, headers, body: body ?? null });
      if (response.status !== 429 || retries === MAX_RETRIES) {
        this.#trackCreated(method, path, response);
        return response;
      }
      const seconds = Number(response.headers.get("retry-after")) || 1;
      await new Promise((resolve) => setTimeout(resolve, Math.min(seconds, MAX_DELAY_S) * 1000));
    }
  }

  /** Sends the path unchanged, because fetch normalizes it, and the body in parts. Captures every byte after the head as text. */
  sendRaw(method: string, path: string, parts: readonly Buffer[] = []): Promise<CapturedResponse> {
    const { protocol, hostname, host, port, pathname } = new URL(this.target.baseUrl);
    const isTls = protocol === "https:";
    const length = Buffer.concat(parts).byteLength;
    const body = length === 0 ? "" : `content-type: application/json\r\ncontent-length: ${length}\r\n`;
    const head = `${method} ${pathname.replace(/\/$/, "")}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n${body}\r\n`;
    const address = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (isTls ? 443 : 80) };
    const chunks: Buffer[] = [];
    const socket = isTls ? connectTls(address) : connectPlain(address);
    return new Promise((resolve) => {
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
      // Each part arrives alone.
      for (const [index, part] of parts.entries()) setTimeout(() => socket.write(part), 30 * (index + 1));
    });
  }

  /** Creates a to-do. Throws a `RuleViolation` when the server does not create one. */
  async create(title: string): Promise<bigint> {
    const response = await this.send("POST", "/api/todos", { body: JSON.stringify({ title }) });
    const id = ownProperty(response.json, "id");
    if (!response.ok || typeof id !== "bigint") throw response.violation("a new to-do");
    return id;
  }

  /** Deletes the to-dos that this client created and that still exist. */
  async cleanup(): Promise<void> {
    const ids = [...this.#createdIds];
    this.#createdIds.clear();
    const deleteNext = async (): Promise<void> => {
      for (let id = ids.pop(); id !== undefined; id = ids.pop())
        await this.#sendUntilAllowed("DELETE", `/api/todos/${id}`, {}).catch(() => undefined);
    };
    await Promise.all(Array.from({ length: 8 }, deleteNext));
  }

  /** Sends no further requests, waits for the pending ones, and deletes the to-dos. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.allSettled(this.#pending);
    await this.cleanup();
  }

  async #fetch(request: string, path: string, init: RequestInit): Promise<CapturedResponse> {
    this.sent += 1;
    const signal = AbortSignal.timeout(this.target.timeoutMs);
    try {
      const response = await fetch(this.target.baseUrl + path, { ...init, redirect: "manual", signal });
      // Not text(), which hides a byte order mark.
      const text = Buffer.from(await response.arrayBuffer()).toString();
      return new CapturedResponse(request, response.status, response.headers, text);
    } catch (error) {
      const failure = `${request}: expected a response, got none`;
      if (signal.aborted)
        throw new RuleViolation(`${failure} within ${this.target.timeoutMs / 1000} s`, ruleOf(request));
      const reason = error instanceof Error ? error.message : String(error);
      throw new UnreachableError(`${failure}: ${reason} (is the server running?)`, ruleOf(request));
    }
  }

  #trackCreated(method: string, path: string, response: CapturedResponse): void {
    if (!response.ok) return;
    // An id in a string violates only `todo.id.type`, so its to-do is deleted, too.
    const id = String(ownProperty(response.json, "id"));
    if (method === "POST" && path === "/api/todos" && /^\d+$/.test(id)) this.#createdIds.add(id);
    if (method === "DELETE") this.#createdIds.delete(path.replace("/api/todos/", ""));
  }
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
];

/** Splits the bytes of an HTTP/1.1 response at its head. The text still contains the sizes of chunks. */
function parseResponse(request: string, bytes: string): CapturedResponse {
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(bytes)?.[1];
  const end = bytes.indexOf("\r\n\r\n");
  const text = end === -1 ? "" : Buffer.from(bytes.slice(end + 4), "latin1").toString();
  return new CapturedResponse(request, Number(status ?? 0), new Headers(), text);
}

function describeRequest(method: string, path: string, body = "", note = "", added = {}): string {
  const headers = Object.entries(added).map(([name, value]) => `with ${name}: ${value}`);
  return [method, path, truncate(body), note, ...headers].filter((part) => part !== "").join(" ");
}

function truncate(text: string): string {
  return text.length <= 160 ? text : `${text.slice(0, 140)}… (${text.length} characters)`;
}
