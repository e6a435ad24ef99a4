/**
 * A typed client of the service, on web standards alone: it runs in Bun, in Node 20 and later, and in browsers.
 * What is lost on the way is sent again by itself, and no to-do is made twice by that.
 */

/** An unsigned 64-bit integer, from 1. A bigint, because a number loses digits past 2^53. */
export type TodoId = bigint;

export interface Todo {
  readonly id: TodoId;
  readonly title: string;
  readonly done: boolean;
}

export interface ListQuery {
  /** Only to-dos in this state. */
  readonly done?: boolean;
  /** Only to-dos with a greater id. */
  readonly after?: TodoId;
  /** At most so many, 1 to 1000; without it, all of them. */
  readonly limit?: number;
}

/** To-dos of one moment, by ascending id. */
export interface TodoList {
  readonly todos: readonly Todo[];
  /** That moment: events that are followed since then miss nothing. */
  readonly position: string;
  /** Where the next page starts (`after`); absent on the last page. */
  readonly next?: TodoId;
}

/** What a stream of events tells: changes, and how it stands with the connection. */
export type TodoEvent =
  | { readonly type: "created" | "updated"; readonly position: string; readonly todo: Todo }
  | { readonly type: "deleted"; readonly position: string; readonly id: TodoId }
  /** What came in between is not known any more: get the list anew. What follows comes after `position`. */
  | { readonly type: "resync"; readonly position: string }
  /** There is a connection now, for the first time or again; what follows comes after `position`. */
  | { readonly type: "connected"; readonly position: string }
  /** There is none, and it is tried again by itself; without an error, the service has ended the stream. */
  | { readonly type: "disconnected"; readonly error?: TodoApiError };

/** The codes of the service's problems; a newer service may have more. */
export type ProblemCode =
  | "invalid_id"
  | "invalid_query"
  | "invalid_json"
  | "invalid_idempotency_key"
  | "unauthorized"
  | "https_required"
  | "cross_site_write"
  | "route_not_found"
  | "todo_not_found"
  | "key_not_found"
  | "method_not_allowed"
  | "key_exists"
  | "idempotency_key_in_flight"
  | "body_too_large"
  | "unsupported_media_type"
  | "misdirected_host"
  | "validation_failed"
  | "idempotency_key_reused"
  | "too_many_failures"
  | "internal_error"
  | "store_unavailable"
  | "credentials_unavailable"
  | "overloaded"
  | "stopping"
  | "store_full";

/** One broken rule of one field. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

interface TodoApiErrorOptions {
  readonly status?: number | undefined;
  readonly detail?: string | undefined;
  readonly fields?: readonly FieldError[] | undefined;
  readonly retryAfter?: number | undefined;
  readonly cause?: unknown;
}

/**
 * Every way in which a call fails, but for an abort, which rejects with the signal's reason, and for what cannot be sent
 * at all, such as a token with a line break: a TypeError.
 */
export class TodoApiError extends Error {
  override readonly name = "TodoApiError";
  /**
   * The service's code, or one of the client's own: `network_error` (no answer, or one that was cut off),
   * `timeout`, and `unexpected_answer` (not of this service, such as a proxy's page).
   */
  readonly code: ProblemCode | "network_error" | "timeout" | "unexpected_answer";
  /** The status of the answer, where there was one. */
  readonly status: number | undefined;
  /** What is wrong with this request, in the service's words. */
  readonly detail: string | undefined;
  /** With `validation_failed`, every broken rule. */
  readonly fields: readonly FieldError[];
  /** Seconds after which the service asks to be tried again. */
  readonly retryAfter: number | undefined;

  constructor(code: TodoApiError["code"], message: string, options: TodoApiErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.status = options.status;
    this.detail = options.detail;
    this.fields = options.fields ?? [];
    this.retryAfter = options.retryAfter;
  }
}

export interface TodoApiOptions {
  /** Where the service is, with a path where it lies below one; by default the page's own origin, else `http://127.0.0.1:3000`. */
  readonly baseUrl?: string;
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string;
  /** Sends the requests instead of the global fetch. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** Milliseconds without a sign of the service, after which a try is given up; by default 10,000. */
  readonly timeoutMs?: number;
  /** How many times a request is sent again at most; by default 4, over some three seconds. */
  readonly retries?: number;
}

export interface CallOptions {
  /** Gives the call up. What was sent before may have come to pass. */
  readonly signal?: AbortSignal | undefined;
}

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;
/** The service sends a comment every 15 seconds where there is nothing to tell. */
const QUIET_MS = 40_000;
/** A stream that lasted for so long, or told something, was a good one: its end is no reason to wait long. */
const STEADY_MS = 5_000;
const LARGEST_PAGE = 1000;

/** Statuses of servers and proxies that say "not now" (RFC 9110 §15, RFC 6585 §4). */
const NOT_NOW: readonly (number | undefined)[] = [408, 429, 502, 503, 504];

/**
 * The service as an object. Every call is sent again, with growing pauses and as `Retry-After` asks, when its answer
 * was lost or is "not now": reading, setting and deleting mean the same any number of times, and creating goes
 * under an Idempotency-Key.
 */
export class TodoApi {
  readonly #baseUrl: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #fetch: NonNullable<TodoApiOptions["fetch"]>;
  readonly #timeoutMs: number;
  readonly #retries: number;

  constructor({ baseUrl = hereUrl(), token, fetch, timeoutMs = 10_000, retries = 4 }: TodoApiOptions = {}) {
    if (!URL.canParse(baseUrl, location?.href)) throw new TypeError(`baseUrl: "${baseUrl}" is no URL`);
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    // A browser's own refuses to be called as another object's method.
    this.#fetch = fetch ?? ((url, init) => globalThis.fetch(url, init));
    this.#timeoutMs = timeoutMs;
    this.#retries = retries;
  }

  /** The to-dos, all of one moment unless there is a `limit`. */
  async list(query: ListQuery = {}, options: CallOptions = {}): Promise<TodoList> {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) search.set(name, String(value));
    return this.#ask("GET", `/api/todos?${search}`.replace(/\?$/, ""), options, ({ headers }, text) => {
      const todos: unknown = parse(text);
      const position = /"(.+)"/.exec(headers.get("etag") ?? "")?.[1];
      const next = /[?&]after=(\d+)[^>]*>; *rel="?next/.exec(headers.get("link") ?? "")?.[1];
      if (!Array.isArray(todos) || position === undefined) throw new SyntaxError("no list");
      return { todos: todos.map(todoOf), position, ...(next !== undefined && { next: BigInt(next) }) };
    });
  }

  /**
   * Page after page of the to-dos. Each is of a later moment than the last: what is right at the end is what the
   * pages show with all events since the first page's position.
   */
  async *pages(query: ListQuery = {}, options: CallOptions = {}): AsyncGenerator<TodoList, void, undefined> {
    let page = await this.list({ limit: LARGEST_PAGE, ...query }, options);
    yield page;
    while (page.next !== undefined) {
      page = await this.list({ limit: LARGEST_PAGE, ...query, after: page.next }, options);
      yield page;
    }
  }

  /** One to-do; rejects with `todo_not_found` when there is none. */
  async get(id: TodoId, options: CallOptions = {}): Promise<Todo> {
    return this.#ask("GET", `/api/todos/${id}`, options, readTodo);
  }

  /**
   * Makes a to-do, one however often it is sent. A key of your own (1 to 255 visible ASCII characters, a new one for
   * each to-do) makes that hold for 24 hours and across calls and processes.
   */
  async create(
    title: string,
    { idempotencyKey = randomKey(), signal }: CallOptions & { readonly idempotencyKey?: string } = {},
  ): Promise<Todo> {
    const quoted = `"${idempotencyKey.replace(/["\\]/g, "\\$&")}"`;
    return this.#ask("POST", "/api/todos", { signal }, readTodo, { title }, { "Idempotency-Key": quoted });
  }

  /** Marks a to-do as done or not. */
  async setDone(id: TodoId, done: boolean, options: CallOptions = {}): Promise<Todo> {
    return this.#ask("PATCH", `/api/todos/${id}`, options, readTodo, { done });
  }

  /**
   * Deletes a to-do; rejects with `todo_not_found` when there is none. Not so when that is the answer to a later try:
   * then it was there, or it is in any case gone now, for an id is never given twice. (Where a connection breaks that was
   * kept, Chromium asks again by itself, and tells of that answer alone.)
   */
  async delete(id: TodoId, options: CallOptions = {}): Promise<void> {
    return this.#ask("DELETE", `/api/todos/${id}`, options, ({ ok, status }) => {
      if (ok && status !== 204) throw new SyntaxError("no deletion");
    });
  }

  /** The name of the client whose token this is. */
  async whoami(options: CallOptions = {}): Promise<string> {
    return this.#ask("GET", "/api/whoami", options, (response, text) => {
      if (!isOfType(response, "text/plain")) throw new SyntaxError("no name");
      return text;
    });
  }

  /**
   * Every change after a position, or from now on, in order, each once, until the signal aborts: then it ends without
   * an error. A lost connection is made again where it was; rejects only when the service refuses (a 4xx).
   *
   * To keep a list: get it, follow since its position, and on `resync` get it anew.
   */
  async *events({
    since,
    signal,
  }: CallOptions & { readonly since?: string } = {}): AsyncGenerator<TodoEvent, void, undefined> {
    let position = since;
    let isDown = false;
    let tries = 0;
    while (!signal?.aborted) {
      const startedAt = Date.now();
      let error: TodoApiError | undefined;
      try {
        const search = position === undefined ? "" : `?since=${encodeURIComponent(position)}`;
        const headers = { Accept: "text/event-stream" };
        const exchange = await this.#open("GET", `/api/events${search}`, signal, undefined, headers);
        try {
          await refuse(exchange);
          readAnswer(exchange.response, () => {
            if (!isStream(exchange.response)) throw new SyntaxError("no stream");
          });
          if (position !== undefined) {
            isDown = false;
            yield { type: "connected", position };
          }
          for await (const message of messages(exchange)) {
            const event = readAnswer(exchange.response, () => eventOf(message));
            if (event === undefined || isTold(event, position)) continue;
            position = event.position;
            tries = 0;
            if (event.type === "connected") isDown = false;
            yield event;
          }
        } finally {
          exchange.close();
        }
      } catch (caught) {
        if (signal?.aborted) return;
        if (!isPassing(caught)) throw caught;
        error = caught;
      }
      if (!isDown) yield { type: "disconnected", ...(error !== undefined && { error }) };
      isDown = true;
      if (Date.now() - startedAt > STEADY_MS) tries = 0;
      await pause(pauseBefore(tries++, error), signal);
    }
  }

  /** Sends a request, and again where that helps; gives what `read` makes of the answer. */
  async #ask<T>(
    method: string,
    path: string,
    { signal }: CallOptions,
    read: (response: Response, text: string) => T,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        const exchange = await this.#open(method, path, signal, body, headers);
        try {
          await refuse(exchange);
          const text = await textOf(exchange);
          return readAnswer(exchange.response, () => read(exchange.response, text));
        } catch (error) {
          // An earlier try may have deleted it.
          if (
            method === "DELETE" &&
            tries > 0 &&
            error instanceof TodoApiError &&
            error.code === "todo_not_found"
          )
            return read(exchange.response, "");
          throw error;
        } finally {
          exchange.close();
        }
      } catch (error) {
        if (tries >= this.#retries || !isPassing(error)) throw error;
        const ms = pauseBefore(tries, error);
        if (ms > LONGEST_PAUSE_MS) throw error;
        await pause(ms, signal);
      }
    }
  }

  /** Sends one request; resolves with the head of the answer. */
  async #open(
    method: string,
    path: string,
    signal: AbortSignal | undefined,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Exchange> {
    signal?.throwIfAborted();
    const ending = new AbortController();
    const end = (): void => ending.abort();
    signal?.addEventListener("abort", end);
    let isLate = false;
    const within = async <T>(ms: number, work: Promise<T>): Promise<T> => {
      const timer = after(ms, () => {
        isLate = true;
        end();
      });
      try {
        return await work;
      } catch (cause) {
        signal?.throwIfAborted();
        const where = `${method} ${this.#baseUrl}${path}`;
        if (isLate) throw new TodoApiError("timeout", `${where}: nothing came for ${ms} ms`, { cause });
        throw new TodoApiError("network_error", `${where}: there is no answer`, { cause });
      } finally {
        clearTimeout(timer);
      }
    };
    const close = (): void => {
      signal?.removeEventListener("abort", end);
      end();
    };
    try {
      // What no header can hold is no fault of the network: this throws a TypeError.
      const all = new Headers({ ...this.#headers, ...headers });
      const init: RequestInit = { method, headers: all, signal: ending.signal };
      if (body !== undefined) {
        init.body = JSON.stringify(body);
        all.set("Content-Type", "application/json");
      }
      const response = await within(this.#timeoutMs, this.#fetch(this.#baseUrl + path, init));
      const reader = response.body?.getReader();
      const decoder = new TextDecoder();
      const quietMs = isStream(response) ? QUIET_MS : this.#timeoutMs;
      return {
        response,
        close,
        read: async () => {
          const piece = reader && (await within(quietMs, reader.read()));
          return piece?.value && decoder.decode(piece.value, { stream: true });
        },
      };
    } catch (error) {
      close();
      throw error;
    }
  }
}

/** An answer that is being read. */
interface Exchange {
  readonly response: Response;
  /** The next piece of its text, undefined at the end. */
  readonly read: () => Promise<string | undefined>;
  /** Lets go of it, whether it was read to the end or not. */
  readonly close: () => void;
}

const { location } = globalThis as { location?: { origin?: string; href?: string } };

/** Where a page is from, or where `npm start` serves. */
const hereUrl = (): string =>
  location?.origin?.startsWith("http") ? location.origin : "http://127.0.0.1:3000";

const isOfType = ({ headers }: Response, type: string): boolean =>
  headers.get("content-type")?.startsWith(type) === true;

const isStream = (response: Response): boolean => response.ok && isOfType(response, "text/event-stream");

async function textOf({ read }: Exchange): Promise<string> {
  let text = "";
  while (true) {
    const piece = await read();
    if (piece === undefined) return text;
    text += piece;
  }
}

/** Throws what an answer that is no success says. */
async function refuse(exchange: Exchange): Promise<void> {
  const { response } = exchange;
  if (response.ok) return;
  const text = await textOf(exchange);
  throw readAnswer(response, () => {
    const problem: unknown = JSON.parse(text);
    if (!isProblem(problem)) throw new SyntaxError("no problem");
    const { code, title, detail, errors: fields } = problem;
    const said = fields?.map(({ field, message }) => `${field} ${message}`).join(", ") ?? detail;
    return new TodoApiError(code, said === undefined ? title : `${title}: ${said}`, {
      status: response.status,
      detail,
      fields,
      retryAfter: retryAfterOf(response),
    });
  });
}

interface Problem {
  readonly title: string;
  readonly code: ProblemCode;
  readonly detail?: string;
  readonly errors?: readonly FieldError[];
}

const isProblem = (value: unknown): value is Problem =>
  isObject(value) && "code" in value && typeof value.code === "string" && "title" in value;

/** What is made of an answer, where it is one of this service. */
function readAnswer<T>(response: Response, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const { status } = response;
    const retryAfter = retryAfterOf(response);
    throw new TodoApiError("unexpected_answer", `this is no answer of a to-do service (${status})`, {
      status,
      retryAfter,
      cause,
    });
  }
}

/** Retry-After in seconds: a number, or a date (RFC 9110 §10.2.3). */
function retryAfterOf({ headers }: Response): number | undefined {
  const text = headers.get("retry-after");
  if (text === null) return undefined;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return seconds >= 0 ? seconds : undefined;
}

/** Whether a failure may be gone at the next try. */
function isPassing(error: unknown): error is TodoApiError {
  if (!(error instanceof TodoApiError)) return false;
  const { code, status = 0 } = error;
  if (code === "network_error" || code === "timeout" || code === "idempotency_key_in_flight") return true;
  // A success that cannot be read was cut off on the way.
  return NOT_NOW.includes(status) || status < 300;
}

/** Milliseconds to wait before the next try: twice as many each time, spread by chance, at least what was asked for. */
function pauseBefore(tries: number, error?: TodoApiError): number {
  const most = Math.min(FIRST_PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS);
  return Math.max((error?.retryAfter ?? 0) * 1000, most * (0.5 + Math.random() / 2));
}

/** A timer cannot be set to more, some 25 days: it would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const after = (ms: number, then: () => void) => setTimeout(then, Math.min(ms, LONGEST_TIMER_MS));

/** Resolves after so long, or at an abort. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = after(ms, end);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** 128 bits of chance. Not randomUUID, which pages over plain HTTP do not have. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Reads JSON with its ids as text, for a number would be rounded. Within a string, a quote has a backslash before it:
 * what this finds is the name of a member, whatever titles hold.
 */
function parse(json: string): unknown {
  return JSON.parse(json.replace(/([{,]\s*"id"\s*:\s*)(\d+)/g, '$1"$2"'));
}

function idOf(value: unknown): TodoId {
  if (isObject(value) && "id" in value && typeof value.id === "string") return BigInt(value.id);
  throw new SyntaxError("no id");
}

function todoOf(value: unknown): Todo {
  const id = idOf(value);
  if (isObject(value) && "title" in value && "done" in value) {
    const { title, done } = value;
    if (typeof title === "string" && typeof done === "boolean") return { id, title, done };
  }
  throw new SyntaxError("no to-do");
}

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

const readTodo = (_response: Response, text: string): Todo => todoOf(parse(text));

interface Message {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** The messages of an event stream (WHATWG HTML §9.2.6) that have an id; one that is cut off at the end is none. */
async function* messages({ read }: Exchange): AsyncGenerator<Message, void, undefined> {
  let rest = "";
  let fields: Record<string, string> = {};
  while (true) {
    const piece = await read();
    if (piece === undefined) return;
    // A carriage return at the very end may be half of a line break.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (line !== "") fields[name] = value;
      else {
        const { id, event = "message", data } = fields;
        fields = {};
        if (id !== undefined && data !== undefined) yield { id, type: event, data };
      }
    }
  }
}

/** What a message tells; nothing, where a newer service tells more than is known here. */
function eventOf({
  id: position,
  type,
  data,
}: Message): Exclude<TodoEvent, { type: "disconnected" }> | undefined {
  switch (type) {
    case "position":
      return { type: "connected", position };
    case "resync":
      return { type, position };
    case "created":
    case "updated":
      return { type, position, todo: todoOf(parse(data)) };
    case "deleted":
      return { type, position, id: idOf(parse(data)) };
    default:
      return undefined;
  }
}

/** Whether a change was told already: positions, `<epoch>-<n>`, count within their epoch. */
function isTold({ type, position }: { type: string; position: string }, last = ""): boolean {
  const [, epoch, n] = /(.*)-(\d+)/.exec(position) ?? [];
  const [, lastEpoch, lastN] = /(.*)-(\d+)/.exec(last) ?? [];
  return type !== "resync" && epoch === lastEpoch && Number(n) <= Number(lastN);
}
