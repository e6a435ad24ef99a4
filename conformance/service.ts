/** The server under judgement, seen from outside: requests with a time limit, and what they brought back. */
import { connect as connectPlain } from "node:net";
import { connect as connectTls } from "node:tls";

/** JSON with whole numbers as bigint, so that ids past 2^53 stay exact (section 2: unsigned 64-bit). */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** The value of a JSON text, or undefined when it is not JSON. */
export function parseJson(text: string): Json | undefined {
  const exact = (_key: string, value: Json, context?: { source?: string }): Json => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && /^(0|-?[1-9]\d*)$/.test(source)
      ? BigInt(source)
      : value;
  };
  try {
    return JSON.parse(text, exact);
  } catch {
    return undefined;
  }
}

/** One member of a JSON object, or undefined when there is none. */
export function member(json: Json | undefined, key: string): Json | undefined {
  const isObject = typeof json === "object" && json !== null && !Array.isArray(json);
  return isObject && Object.hasOwn(json, key) ? json[key] : undefined;
}

/** A rule that does not hold; the message says what was sent, what was expected and what came. */
export class Failure extends Error {}

/** Nothing answered at all, for another reason than the time limit. */
export class Unreachable extends Failure {}

/** What was sent, in words fit for a report (never a credential), and what came back. */
export class Answer {
  readonly sent: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;

  constructor(sent: string, status: number, headers: Headers, text: string) {
    this.sent = sent;
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

  /** Fails the case, with the whole story, unless `holds`. */
  expect(holds: boolean, expected: string): void {
    if (!holds) throw this.failure(expected);
  }

  failure(expected: string): Failure {
    const came = [this.status, this.contentType, shorten(this.text)].filter((part) => part !== "").join(" ");
    return new Failure(`${this.sent}: expected ${expected}, got ${came}`);
  }

  expectStatus(status: number): void {
    this.expect(this.status === status, String(status));
  }

  /** For a refusal whose status is not shown, but which is the sender's fault. */
  expect4xx(): void {
    this.expect(this.status >= 400 && this.status < 500, "a 4xx");
  }
}

export interface Target {
  /** Where the server is, with no slash at the end: `http://host:port` or `http://host:port/path`. */
  readonly base: string;
  readonly token: string;
  readonly user: { readonly name: string; readonly password: string };
  readonly clientName: string | undefined;
  readonly timeoutMs: number;
}

interface Sending {
  /** A value to send as JSON. */
  readonly json?: Json;
  /** A text to send as it stands, declared as JSON. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Says in the report what the headers were, which themselves are never shown. */
  readonly as?: string;
}

/** What a case gets: the server, and the credentials the user gave (empty where its rule does not need them). */
export class Service {
  readonly target: Target;
  readonly #created = new Set<bigint>();
  readonly #mark = crypto.randomUUID().slice(0, 8);
  #titles = 0;

  constructor(target: Target) {
    this.target = target;
  }

  /** A valid title that no other item has. */
  title(): string {
    this.#titles += 1;
    return `conformance ${this.#mark} ${this.#titles}`;
  }

  async send(method: string, path: string, sending: Sending = {}): Promise<Answer> {
    const body = sending.json === undefined ? sending.body : JSON.stringify(sending.json);
    const sent = describe(method, path, body, sending.as);
    const headers = new Headers(sending.headers);
    if (body !== undefined) headers.set("content-type", "application/json");
    const answer = await this.#fetch(sent, path, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    });
    this.#remember(method, path, answer);
    return answer;
  }

  /** Sends a path as it is written, where fetch would normalise it, and keeps every byte after the head as text. */
  raw(method: string, path: string): Promise<Answer> {
    const { protocol, hostname, host, port, pathname } = new URL(this.target.base);
    const secure = protocol === "https:";
    const head = `${method} ${pathname.replace(/\/$/, "")}${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`;
    const address = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || (secure ? 443 : 80) };
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const chunks: Buffer[] = [];
    const socket = secure ? connectTls(address) : connectPlain(address);
    // The end, an error and the time limit all end the answer: what came until then is judged.
    const finish = () => {
      socket.destroy();
      resolve(readRaw(describe(method, path), Buffer.concat(chunks).toString("latin1")));
    };
    socket.setTimeout(this.target.timeoutMs, finish);
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", finish);
    socket.on("close", finish);
    socket.write(head);
    return promise;
  }

  /** An item to work with. Fails when none can be had. */
  async create(title = this.title()): Promise<{ id: bigint; title: string; answer: Answer }> {
    const answer = await this.send("POST", "/api/todos", { json: { title } });
    const id = member(answer.json, "id");
    if (!answer.ok || typeof id !== "bigint") throw answer.failure("an item to work with");
    return { id, title, answer };
  }

  /** The id of an item that existed and does no more. */
  async createAndDelete(): Promise<bigint> {
    const { id } = await this.create();
    await this.send("DELETE", `/api/todos/${id}`);
    return id;
  }

  /** The whole list. Fails when none can be had. */
  async list(): Promise<{ items: Json[]; answer: Answer }> {
    const answer = await this.send("GET", "/api/todos");
    const items = answer.json;
    if (!answer.ok || !Array.isArray(items)) throw answer.failure("a list");
    return { items, answer };
  }

  /** Deletes what this run created and still stands. */
  async tidy(): Promise<void> {
    for (const id of [...this.#created]) {
      await this.send("DELETE", `/api/todos/${id}`).catch(() => undefined);
    }
  }

  async #fetch(sent: string, path: string, init: RequestInit): Promise<Answer> {
    const signal = AbortSignal.timeout(this.target.timeoutMs);
    try {
      const response = await fetch(this.target.base + path, { ...init, redirect: "manual", signal });
      return new Answer(sent, response.status, response.headers, await response.text());
    } catch (error) {
      const story = `${sent}: expected an answer, got none`;
      if (signal.aborted) throw new Failure(`${story} within ${this.target.timeoutMs / 1000} s`);
      throw new Unreachable(`${story}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #remember(method: string, path: string, answer: Answer): void {
    if (!answer.ok) return;
    const id = member(answer.json, "id");
    if (method === "POST" && path === "/api/todos" && typeof id === "bigint") this.#created.add(id);
    const deleted = method === "DELETE" ? /^\/api\/todos\/(\d+)$/.exec(path)?.[1] : undefined;
    if (deleted !== undefined) this.#created.delete(BigInt(deleted));
  }
}

/** An answer from the bytes of a connection, one character a byte (latin1), as chunks are counted in bytes. */
function readRaw(sent: string, bytes: string): Answer {
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(bytes)?.[1];
  const end = bytes.indexOf("\r\n\r\n");
  const head = bytes.slice(0, end);
  const rest = end === -1 ? "" : bytes.slice(end + 4);
  const body = /^transfer-encoding:.*chunked/im.test(head) ? unchunk(rest) : rest;
  return new Answer(sent, Number(status ?? 0), new Headers(), Buffer.from(body, "latin1").toString());
}

function unchunk(body: string): string {
  const line = /^([0-9a-f]+).*\r\n/i.exec(body);
  const length = Number.parseInt(line?.[1] ?? "0", 16);
  if (line === null || length === 0) return "";
  const start = line[0].length;
  return body.slice(start, start + length) + unchunk(body.slice(start + length + 2));
}

function describe(method: string, path: string, body?: string, as?: string): string {
  return [method, path, shorten(body ?? ""), as ?? ""].filter((part) => part !== "").join(" ");
}

function shorten(text: string): string {
  return text.length <= 160 ? text : `${text.slice(0, 140)}… (${text.length} long)`;
}
