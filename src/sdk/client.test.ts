import { afterEach, describe, expect, jest, test } from "bun:test";
import { once } from "node:events";
import { Readable } from "node:stream";
import contract from "../../openapi.json" with { type: "json" };
import { testClient } from "../../test/client-suite.ts";
import { hurry } from "../../test/hurry.ts";
import { errorOf } from "../../test/rejection.ts";
import { runChecks, storm } from "../../test/sdk-suite.ts";
import { startService } from "../../test/service.ts";
import * as sdk from "./client.ts";

const TOKEN = "t0ken";

testClient("Bun", {
  runChecks: (places) => runChecks(sdk, places),
  storm: (...args) => storm(sdk, ...args),
});

/** Returns a client of a service that gives these responses in order. The service repeats the last one. */
function answered(
  answers: readonly ((init: RequestInit) => Response)[],
  retries = 4,
  options: sdk.TodoApiOptions = {},
) {
  const sent: { readonly url: string; readonly init: RequestInit }[] = [];
  const api = new sdk.TodoApi({
    baseUrl: "https://todo.example/base/",
    token: TOKEN,
    retries,
    ...options,
    fetch: async (url, init) => {
      sent.push({ url, init });
      const answer = answers[Math.min(sent.length, answers.length) - 1];
      if (answer === undefined) throw new Error("no answer");
      return answer(init);
    },
  });
  return { api, sent };
}

const COMMENT = new TextEncoder().encode(":\n");

const stream = (body: string | ReadableStream) =>
  new Response(body, { headers: { "Content-Type": "text/event-stream" } });

/** Lets everything run that waits for no timer. */
async function untilIdle(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const TODO = '{"id":1,"title":"a","done":false}';
const problem = (status: number, code: string, headers: Readonly<Record<string, string>> = {}) =>
  Response.json({ title: "No", status, code }, { status, headers });
const outcomeOf = (call: Promise<unknown>): Promise<unknown> => call.catch((error) => error.code);

describe("the client", () => {
  afterEach(() => void jest.useRealTimers());

  test.each<[what: string, answer: () => Response, outcome: string, tries: number]>([
    ["503", () => problem(503, "store_unavailable"), "store_unavailable", 2],
    ["an unexpected response body", () => Response.json({ id: "1" }), "unexpected_answer", 2],
    ["a long Retry-After", () => problem(503, "stopping", { "Retry-After": "60" }), "stopping", 1],
  ])("retries a request only if that may help: %s", async (_what, answer, outcome, tries) => {
    const { api, sent } = answered([answer], 1);
    expect(await outcomeOf(api.create("a"))).toBe(outcome);
    expect(sent).toHaveLength(tries);
    expect(new Set(sent.map(({ init }) => new Headers(init.headers).get("idempotency-key"))).size).toBe(1);
  });

  test("waits for the time in a Retry-After", async () => {
    const busy = () => problem(503, "stopping", { "Retry-After": "1" });
    using _ = hurry();
    const start = Date.now();
    await answered([busy, () => new Response(TODO)]).api.get(1n);
    expect(Date.now() - start).toBe(1000);
  });

  test("accepts a 404 for a deletion only if an earlier attempt may have succeeded", async () => {
    const gone = () => problem(404, "todo_not_found");
    const lost = () => problem(503, "store_unavailable");
    expect(await outcomeOf(answered([gone]).api.delete(1n))).toBe("todo_not_found");
    expect(await outcomeOf(answered([lost, gone]).api.delete(1n))).toBeUndefined();
    expect(await outcomeOf(answered([lost, gone]).api.setDone(1n, true))).toBe("todo_not_found");
    expect(await outcomeOf(answered([lost, () => problem(404, "key_not_found")]).api.keys.revoke("a"))).toBe(
      undefined,
    );
    const elsewhere = () => problem(404, "route_not_found");
    expect(await outcomeOf(answered([lost, elsewhere]).api.delete(1n))).toBe("route_not_found");
  });

  const page = (ids: readonly number[], next?: number) => () =>
    new Response(`[${ids.map((id) => `{"id":${id},"title":"a","done":false}`)}]`, {
      headers: {
        ...{ "Todo-Position": "e-1", ETag: '"e-0"' },
        ...(next !== undefined && { Link: `</api/todos?limit=1&after=${next}>; rel="next"` }),
      },
    });

  test("sends requests below its base URL, with its token", async () => {
    const { api, sent } = answered([page([1], 1)]);
    expect(await api.list({ done: false, limit: 1 })).toEqual({
      todos: [{ id: "1", title: "a", done: false }],
      position: "e-1",
      next: "1",
    });
    expect(sent[0]?.url).toBe("https://todo.example/base/api/todos?done=false&limit=1");
    expect(new Headers(sent[0]?.init.headers).get("authorization")).toBe(`Bearer ${TOKEN}`);
    expect(sent[0]?.init.body).toBeUndefined();
  });

  test("sends the title as JSON, and follows no redirect, because another origin would get it", async () => {
    const { api, sent } = answered([() => new Response(TODO)]);
    await api.create("ä");
    expect(sent[0]?.init).toMatchObject({ method: "POST", body: '{"title":"ä"}', redirect: "manual" });
  });

  test("takes the position of a list from Todo-Position only, because a proxy may change the ETag", async () => {
    const { api } = answered([() => new Response("[]", { headers: { ETag: 'W/"e-1"' } })], 0);
    expect(await outcomeOf(api.list())).toBe("unexpected_answer");
  });

  test("an abort ends the wait before a retry", async () => {
    const { api, sent } = answered([() => problem(503, "stopping", { "Retry-After": "9" })]);
    const leaving = new AbortController();
    // No timer fires, so only the abort can end the wait.
    jest.useFakeTimers();
    const outcomes: unknown[] = [];
    api.list({}, leaving).catch((reason) => outcomes.push(reason));
    await untilIdle();
    leaving.abort("left");
    await untilIdle();
    expect([sent.length, outcomes]).toEqual([1, ["left"]]);
    jest.useRealTimers();
  });

  test("iteration requests a page only when it is needed", async () => {
    const { api, sent } = answered([page([1, 2], 2), page([3])]);
    const found: string[] = [];
    for await (const { id } of api.todos({ done: false, after: "0", pageSize: 2 })) {
      found.push(id);
      if (id === "2") expect(sent).toHaveLength(1);
    }
    expect(found).toEqual(["1", "2", "3"]);
    expect(sent.map(({ url }) => new URL(url).search)).toEqual([
      "?limit=2&done=false&after=0",
      "?limit=2&done=false&after=2",
    ]);
  });

  test("iteration rejects when a page fails, and sends the headers of the call with each page", async () => {
    const { api, sent } = answered([page([1], 1), () => problem(400, "invalid_query")]);
    const headers = { "X-Trace": "1" };
    expect(await outcomeOf(Array.fromAsync(api.todos({}, { headers })))).toBe("invalid_query");
    expect(sent.map(({ init }) => new Headers(init.headers).get("x-trace"))).toEqual(["1", "1"]);
  });

  test("headers of a call replace the token, but not the headers that the call needs", async () => {
    const { api, sent } = answered([() => new Response(TODO)]);
    const headers = {
      authorization: "Basic YTpi",
      "content-type": "text/plain",
      "idempotency-key": '"other"',
    };
    await api.create("a", { idempotencyKey: "own", headers });
    expect(Object.fromEntries(new Headers(sent[0]?.init.headers))).toEqual({
      authorization: "Basic YTpi",
      "content-type": "application/json",
      "idempotency-key": '"own"',
    });
  });

  test("a token can be a function, which runs before each attempt and not for API keys", async () => {
    const tokens = ["a", "b"];
    const busy = () => problem(503, "stopping");
    const { api, sent } = answered([busy, () => new Response(TODO), () => Response.json([])], 4, {
      token: async () => tokens.shift(),
    });
    await api.get("1");
    await api.keys.list();
    const sentTokens = sent.map(({ init }) => new Headers(init.headers).get("authorization"));
    expect(sentTokens).toEqual(["Bearer a", "Bearer b", null]);
    const failing = answered([() => new Response(TODO)], 4, {
      token: () => Promise.reject(new Error("signed out")),
    });
    expect(await errorOf(failing.api.get("1"))).toEqual(new Error("signed out"));
    expect(failing.sent).toEqual([]);
  });

  test("a call can have its own timeout and number of retries", async () => {
    const { api, sent } = answered([() => problem(503, "stopping")], 0);
    expect(await outcomeOf(api.get("1", { retries: 1 }))).toBe("stopping");
    expect(sent).toHaveLength(2);
    const silent = new sdk.TodoApi({
      fetch: (_url, { signal }) =>
        new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason))),
    });
    expect(await outcomeOf(silent.get("1", { timeoutMs: 5, retries: 0 }))).toBe("timeout");
  });

  test("events are requested with the headers of the call", async () => {
    const { api, sent } = answered([() => stream("")]);
    await api.events({ since: "e-1", headers: { traceparent: "00-1", accept: "text/html" } }).next();
    const { traceparent, accept } = Object.fromEntries(new Headers(sent[0]?.init.headers));
    expect([traceparent, accept]).toEqual(["00-1", "text/event-stream"]);
  });

  test("reports each disconnection and each reconnection once", async () => {
    using _ = hurry();
    const busy = () => problem(503, "stopping");
    const leaving = new AbortController();
    const { api } = answered([
      busy,
      busy,
      () => stream("id: e-1\nevent: position\ndata: {}\n\n"),
      busy,
      busy,
      () => stream(":\n"),
      () => {
        leaving.abort();
        return busy();
      },
    ]);
    const types = (await Array.fromAsync(api.events(leaving))).map(({ type }) => type);
    expect(types).toEqual(["disconnected", "connected", "disconnected", "connected", "disconnected"]);
  });

  test.each<[how: string, error: Error | undefined]>([
    ["return", undefined],
    ["throw", new Error("left")],
  ])("ends an event stream at once on %s() while it waits for an event", async (_how, error) => {
    await using service = startService();
    const events = Readable.from(new sdk.TodoApi({ baseUrl: service.url }).events());
    expect((await once(events, "data"))[0]).toMatchObject({ type: "connected" });
    events.on("error", () => {});
    await new Promise((resolve) => events.once("close", resolve).destroy(error));
    expect(events.errored).toBe(error ?? null);
  });

  test.each([
    ["a comment", [COMMENT], ["connected", "disconnected"]],
    ["a head without data", [], ["disconnected"]],
  ])("disconnects a stream after 30 seconds of silence after %s", async (_what, sent, types) => {
    using _ = hurry();
    const { api } = answered([
      ({ signal }) =>
        stream(
          new ReadableStream({
            start: (controller) => {
              for (const piece of sent) controller.enqueue(piece);
              signal?.addEventListener("abort", () => controller.error(signal.reason));
            },
          }),
        ),
    ]);
    const start = Date.now();
    const events = api.events({ since: "e-1" });
    for (const type of types) {
      const { value } = await events.next();
      expect(value).toMatchObject(
        type === "connected" ? { type, position: "e-1" } : { type, error: { code: "timeout" } },
      );
    }
    expect(Date.now() - start).toBe(30_000);
  });

  test.each<[what: string, lastsMs: number, answer: (n: number) => Response]>([
    ["sent an event", 0, (n) => stream(`id: e-${n}\nevent: deleted\ndata: {"id":1}\n\n`)],
    [
      "stayed open for 6 seconds",
      6000,
      () =>
        stream(
          new ReadableStream({
            start: (controller) => {
              controller.enqueue(COMMENT);
              setTimeout(() => controller.close(), 6000);
            },
          }),
        ),
    ],
  ])("reconnects with the shortest delay after a stream that %s", async (_what, lastsMs, answer) => {
    using _ = hurry();
    const { api, sent } = answered([() => answer(sent.length)]);
    const start = Date.now();
    for await (const { type } of api.events({ since: "e-0" }))
      if (type === "connected" && sent.length === 6) break;
    expect((Date.now() - start) / 5 - lastsMs).toBeWithin(100, 201);
  });

  test("does not retry an event stream that the service rejects", async () => {
    const { api, sent } = answered([() => problem(400, "invalid_query")]);
    expect(await outcomeOf(Array.fromAsync(api.events({ since: "e-1" })))).toBe("invalid_query");
    expect(sent).toHaveLength(1);
  });

  const signIn = () => new Response("<h1>Sign in", { headers: { "Content-Type": "text/html" } });
  const calls: Record<
    keyof sdk.TodoApiCore | `keys.${keyof sdk.KeysApi}`,
    (api: sdk.TodoApi, options?: sdk.CallOptions) => Promise<unknown>
  > = {
    list: (api, options) => api.list({}, options),
    get: (api, options) => api.get(1n, options),
    create: (api, options) => api.create("a", options),
    setDone: (api, options) => api.setDone(1n, true, options),
    delete: (api, options) => api.delete(1n, options),
    whoami: (api, options) => api.whoami(options),
    "keys.list": ({ keys }, options) => keys.list(options),
    "keys.create": ({ keys }, options) => keys.create("ci", options),
    "keys.rotate": ({ keys }, options) => keys.rotate("c7kcKWBu", options),
    "keys.rename": ({ keys }, options) => keys.rename("c7kcKWBu", "build", options),
    "keys.createLink": ({ keys }, options) => keys.createLink("c7kcKWBu", options),
    "keys.revoke": ({ keys }, options) => keys.revoke("c7kcKWBu", options),
  };
  test.each(Object.entries(calls))("%s rejects a proxy's HTML page and an abort", async (_name, call) => {
    const { api } = answered([signIn], 0);
    expect(await outcomeOf(call(api))).toBe("unexpected_answer");
    const leaving = new AbortController();
    leaving.abort("left");
    expect(await call(api, leaving).catch((reason) => reason)).toBe("left");
  });

  test.each(["keys.create", "keys.rotate"] as const)("sends %s once, or there are two keys", async (name) => {
    const key = () => new Response('{"id":"c7kcKWBu","name":"ci"}');
    for (const [code, ...answers] of [
      ["store_unavailable", () => problem(503, "store_unavailable")],
      ["unexpected_answer", key],
      ["network_error"],
    ] as const) {
      const { api, sent } = answered(answers);
      expect([await outcomeOf(calls[name](api)), sent.length]).toEqual([code, 1]);
    }
  });

  test.each<[what: string, answer: () => Response]>([
    ["an HTML page", signIn],
    ["an empty response", () => new Response(null, { status: 204 })],
  ])("rejects %s as an event stream", async (_what, answer) => {
    const { api } = answered([answer]);
    const first = await api.events({ since: "e-1" }).next();
    expect(first.value).toMatchObject({ type: "disconnected", error: { code: "unexpected_answer" } });
  });

  test("waits longer than the maximum delay of a timer", async () => {
    const fetch = async () => {
      await Bun.sleep(50);
      return new Response(TODO);
    };
    for (const timeoutMs of [Number.POSITIVE_INFINITY, 2 ** 31])
      expect(await new sdk.TodoApi({ timeoutMs, fetch }).get(1n)).toMatchObject({ id: "1" });
  });

  test("rejects invalid options before it sends a request", async () => {
    for (const [baseUrl, write] of [
      ["localhost:3000", "http://localhost:3000"],
      ["todo.example", "http://todo.example"],
      ["//todo.example/base", "http://todo.example/base"],
      ["ftp://todo.example", "http://todo.example"],
    ] as const)
      expect(() => new sdk.TodoApi({ baseUrl })).toThrow(
        `baseUrl: "${baseUrl}" is not an HTTP URL: write it as "${write}"`,
      );
    expect(() => new sdk.TodoApi({ admin: { name: "a:b", password: "c" } })).toThrow(
      'admin.name: "a:b" must not contain a colon',
    );
    for (const token of ["a\nb", "\u2603"])
      expect(await errorOf(new sdk.TodoApi({ token }).list())).toBeInstanceOf(TypeError);
    const { api, sent } = answered([() => new Response(TODO)]);
    expect(await errorOf(api.get(1n, { headers: { "a b": "c" } }))).toBeInstanceOf(TypeError);
    expect(await errorOf(api.create("a", { idempotencyKey: "\u2603" }))).toBeInstanceOf(TypeError);
    expect(sent).toEqual([]);
  });

  test.each(["", ".", ".."])('sends no request for the id "%s"', async (id) => {
    const { api, sent } = answered([() => new Response(TODO)]);
    // It would change the route.
    for (const call of [api.get(id), api.setDone(id, true), api.delete(id)])
      expect(await errorOf(call)).toMatchObject({ code: "invalid_id" });
    for (const call of [api.keys.revoke(id), api.keys.rotate(id)])
      expect(await errorOf(call)).toMatchObject({ code: "key_not_found" });
    expect(sent).toEqual([]);
  });

  test("has the types of openapi.json", () => {
    const { Todo, Problem, FieldError } = contract.components.schemas;
    const todo: Readonly<Record<keyof sdk.Todo, string>> = {
      id: "integer",
      title: "string",
      done: "boolean",
    };
    const field: Readonly<Record<keyof sdk.FieldError, string>> = { field: "string", message: "string" };
    expect(typesOf(Todo.properties)).toEqual(todo);
    expect(typesOf(FieldError.properties)).toEqual(field);
    expect(Todo.required).toEqual(Object.keys(todo));
    expect(Object.keys(Problem.properties)).toEqual([
      ...["type", "title", "status", "code", "detail", "errors"],
    ]);
  });
});

const typesOf = (properties: Readonly<Record<string, { readonly type: string }>>): Record<string, string> =>
  Object.fromEntries(Object.entries(properties).map(([name, { type }]) => [name, type]));
