import { describe, expect, test } from "bun:test";
import { errorOf } from "../../test/rejection.ts";
import { interpret, openExchange, readText, throwProblem } from "./exchange.ts";
import { TodoApiError } from "./types.ts";

const URL = "https://todo.example/api/todos";

type Fetch = Parameters<typeof openExchange>[0];

const openWith = (
  fetch: Fetch,
  { signal, timeoutMs = 60_000 }: { signal?: AbortSignal; timeoutMs?: number } = {},
) => openExchange(fetch, URL, { method: "GET", signal }, timeoutMs);

/** A fetch that never answers and rejects on abort, as a real one does. */
const silent: Fetch = (_url, { signal }) =>
  new Promise((_resolve, reject) =>
    signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError"))),
  );

describe("openExchange", () => {
  test("rejects with network_error if there is no response", async () => {
    const cause = new TypeError("connection refused");
    const error = await errorOf(openWith(() => Promise.reject(cause)));
    expect(error).toMatchObject({ code: "network_error", message: `GET ${URL}: no response`, cause });
  });

  test("rejects with timeout if the response does not arrive in time", async () => {
    const error = await errorOf(openWith(silent, { timeoutMs: 5 }));
    expect(error).toMatchObject({ code: "timeout", message: `GET ${URL}: no data for 5 ms` });
  });

  test("rejects with the signal's reason", async () => {
    const leaving = new AbortController();
    const reason = new Error("left");
    const opening = errorOf(openWith(silent, leaving));
    leaving.abort(reason);
    expect(await opening).toBe(reason);
    expect(await errorOf(openWith(silent, leaving))).toBe(reason);
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
    const exchange = await openWith(async () => new Response(body));
    expect(await readText(exchange)).toBe("a😀b");
    expect(await readText(exchange)).toBe("");
  });

  test("aborts its request when it is closed", async () => {
    const signals: (AbortSignal | null | undefined)[] = [];
    const exchange = await openWith(async (_url, { signal }) => {
      signals.push(signal);
      return new Response("a");
    });
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
    const error = await problemOf(
      Response.json(body, { status: 422, headers: { "Retry-After": "3", "X-Request-Id": "r-7" } }),
    );
    expect(error).toBeInstanceOf(TodoApiError);
    expect(error).toMatchObject({
      code: "validation_failed",
      message: "Invalid: title must not be empty, done must be a boolean",
      ...{ status: 422, detail: "two", fields: errors, retryAfter: 3, requestId: "r-7" },
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
  [200, "the response is not from a to-do service (status 200)"],
  [500, "the response is not from a to-do service (status 500)"],
  [502, "the proxy cannot reach the to-do service (status 502)"],
  [503, "the proxy cannot reach the to-do service (status 503)"],
  [504, "the proxy cannot reach the to-do service (status 504)"],
])("interpret says what a response with status %i means", async (status, message) => {
  const cause = new SyntaxError("not a list");
  const fail = (): never => {
    throw cause;
  };
  const error = await errorOf((async () => interpret(new Response(null, { status }), fail))());
  expect(error).toMatchObject({ code: "unexpected_answer", status, message, cause });
});
