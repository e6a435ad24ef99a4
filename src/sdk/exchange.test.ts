import { describe, expect, test } from "bun:test";
import { errorOf } from "../../test/rejection.ts";
import {
  basicAuthorization,
  type ExchangeRequest,
  interpret,
  openExchange,
  readDeletion,
  readText,
  throwProblem,
} from "./exchange.ts";
import { TodoApiError } from "./types.ts";

const URL = "https://todo.example/api/todos";

/** Returns a request whose response comes from `fetch`. */
const requestOf = (
  fetch: ExchangeRequest["fetch"],
  options: Partial<ExchangeRequest> = {},
): ExchangeRequest => ({
  call: { method: "GET", path: "/api/todos" },
  url: URL,
  authorization: undefined,
  timeoutMs: 60_000,
  fetch,
  ...options,
});

/** Returns what `openExchange` passes to `fetch`. */
async function sentFor(options: Partial<ExchangeRequest>): Promise<RequestInit & { url: string }> {
  const sent: (RequestInit & { url: string })[] = [];
  const fetch: ExchangeRequest["fetch"] = async (url, init) => {
    sent.push({ url, ...init });
    return new Response();
  };
  (await openExchange(requestOf(fetch, options))).close();
  const [first] = sent;
  if (first === undefined) throw new Error("nothing was sent");
  return first;
}

/** A fetch that never answers and rejects on abort, as a real one does. */
const silent: ExchangeRequest["fetch"] = (_url, { signal }) =>
  new Promise((_resolve, reject) =>
    signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError"))),
  );

describe("openExchange", () => {
  test("sends the body as JSON, and the headers", async () => {
    const { url, method, headers, body } = await sentFor({
      call: {
        ...{ method: "POST", path: "/api/todos", body: { title: "ä" } },
        ...{ accept: "text/plain", idempotencyKey: 'a"\\b' },
      },
      authorization: "Bearer t0ken",
      headers: { traceparent: "00-1" },
    });
    expect([url, method, body]).toEqual([URL, "POST", '{"title":"ä"}']);
    expect(Object.fromEntries(new Headers(headers))).toEqual({
      accept: "text/plain",
      authorization: "Bearer t0ken",
      "content-type": "application/json",
      "idempotency-key": '"a\\"\\\\b"',
      traceparent: "00-1",
    });
  });

  test("follows no redirect, because another origin would get the title", async () => {
    expect(await sentFor({})).toMatchObject({ redirect: "manual" });
  });

  test("sends neither body nor headers if there are none", async () => {
    const { headers, body } = await sentFor({});
    expect([body, Object.fromEntries(new Headers(headers))]).toEqual([undefined, {}]);
  });

  test("rejects with network_error if there is no response", async () => {
    const cause = new TypeError("connection refused");
    const error = await errorOf(openExchange(requestOf(() => Promise.reject(cause))));
    expect(error).toMatchObject({ code: "network_error", message: `GET ${URL}: no response`, cause });
  });

  test("rejects with timeout if the response does not arrive in time", async () => {
    const error = await errorOf(openExchange(requestOf(silent, { timeoutMs: 5 })));
    expect(error).toMatchObject({ code: "timeout", message: `GET ${URL}: no data for 5 ms` });
  });

  test("rejects with the signal's reason", async () => {
    const controller = new AbortController();
    const reason = new Error("left");
    const opening = errorOf(openExchange(requestOf(silent, { signal: controller.signal })));
    controller.abort(reason);
    expect(await opening).toBe(reason);
    expect(await errorOf(openExchange(requestOf(silent, { signal: controller.signal })))).toBe(reason);
  });

  test("rejects with a TypeError for an invalid header, and sends nothing", async () => {
    const fetch = (): Promise<Response> => Promise.reject(new Error("it was sent"));
    for (const options of [
      { headers: { "a b": "c" } },
      { headers: { a: "b\nc" } },
      { authorization: "\u2603" },
    ])
      expect(await errorOf(openExchange(requestOf(fetch, options)))).toBeInstanceOf(TypeError);
  });
});

describe("an exchange", () => {
  const bytes = new TextEncoder().encode("a😀b");

  test("decodes a character that is split between pieces", async () => {
    const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
      start: (controller) => {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const exchange = await openExchange(requestOf(async () => new Response(body)));
    expect(await readText(exchange)).toBe("a😀b");
    expect(await readText(exchange)).toBe("");
  });

  test("rejects with network_error if the connection fails within the body", async () => {
    const body = new ReadableStream({ pull: (controller) => controller.error(new Error("reset")) });
    const exchange = await openExchange(requestOf(async () => new Response(body)));
    expect(await errorOf(readText(exchange))).toMatchObject({ code: "network_error" });
  });

  test("aborts its request when it is closed", async () => {
    const signals: (AbortSignal | null | undefined)[] = [];
    const exchange = await openExchange(
      requestOf(async (_url, { signal }) => {
        signals.push(signal);
        return new Response("a");
      }),
    );
    exchange.close();
    expect(signals.map((signal) => signal?.aborted)).toEqual([true]);
  });
});

describe("throwProblem", () => {
  const problemOf = async (response: Response): Promise<unknown> =>
    errorOf(response.text().then((text) => throwProblem(response, text)));

  test("throws the service's error", async () => {
    const errors = [
      { field: "title", message: "must not be empty" },
      { field: "done", message: "must be a boolean" },
    ];
    const body = { title: "Invalid", status: 422, code: "validation_failed", detail: "two", errors };
    const error = await problemOf(Response.json(body, { status: 422, headers: { "Retry-After": "3" } }));
    expect(error).toBeInstanceOf(TodoApiError);
    expect(error).toMatchObject({
      code: "validation_failed",
      message: "Invalid: title must not be empty, done must be a boolean",
      ...{ status: 422, detail: "two", fields: errors, retryAfter: 3 },
    });
  });

  test("throws a message with the field errors, or else the detail, or else only the title", async () => {
    const messageOf = async (body: object): Promise<unknown> =>
      problemOf(Response.json({ title: "No", code: "teapot", ...body }, { status: 418 }));
    const errors = [{ field: "title", message: "is required" }];
    expect(await messageOf({ detail: "why", errors })).toMatchObject({ message: "No: title is required" });
    expect(await messageOf({ detail: "why" })).toMatchObject({ message: "No: why" });
    expect(await messageOf({})).toMatchObject({ message: "No" });
  });

  test.each<[body: string]>([
    ["<h1>Bad Gateway"],
    ["null"],
    ['{"code":7,"title":"No"}'],
    ['{"code":"teapot"}'],
  ])("throws unexpected_answer for the body %s", async (body) => {
    expect(await problemOf(new Response(body, { status: 502 }))).toMatchObject({
      code: "unexpected_answer",
      status: 502,
      fields: [],
    });
  });
});

test.each([
  [500, "the response is not from a to-do service (status 500)"],
  [502, "the proxy cannot reach the to-do service (status 502)"],
  [503, "the proxy cannot reach the to-do service (status 503)"],
  [504, "the proxy cannot reach the to-do service (status 504)"],
])("interpret says what a response of a proxy with status %i means", async (status, message) => {
  const read = async () => interpret(new Response("<h1>Error", { status }), () => JSON.parse("<h1>Error"));
  expect(await errorOf(read())).toMatchObject({ code: "unexpected_answer", message });
});

test("interpret turns any error into unexpected_answer, with the error as its cause", async () => {
  const cause = new SyntaxError("not a list");
  const read = (): never => {
    throw cause;
  };
  const response = new Response();
  expect(interpret(response, () => 7)).toBe(7);
  expect(await errorOf((async () => interpret(response, read))())).toMatchObject({
    ...{ code: "unexpected_answer", status: 200, cause },
  });
});

test("readDeletion accepts 204, and a 404 after a retry, but no other success", () => {
  readDeletion(new Response(null, { status: 204 }));
  readDeletion(new Response(null, { status: 404 }));
  expect(() => readDeletion(new Response("a page"))).toThrow(SyntaxError);
});

test("basicAuthorization encodes name and password as UTF-8", () => {
  const expected = Buffer.from("ä:p:☃").toString("base64");
  expect(basicAuthorization({ name: "ä", password: "p:☃" })).toBe(`Basic ${expected}`);
});
