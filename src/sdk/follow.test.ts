import { describe, expect, test } from "bun:test";
import { hurry } from "../../test/hurry.ts";
import { errorOf } from "../../test/rejection.ts";
import { startService } from "../../test/service.ts";
import { until } from "../../test/until.ts";
import { type LiveList, TodoApi } from "./client.ts";

/** Takes no time while a test hurries. */
const oneFrame = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

/** Returns the events of changes, one after another, as the service sends them. */
const messages = (first: number, ...changes: readonly (readonly [type: string, data: string])[]): string =>
  changes.map(([type, data], at) => `id: e-${first + at}\nevent: ${type}\ndata: ${data}\n\n`).join("");
const todo = (id: number, done = false): string => `{"id":${id},"title":"${id}","done":${done}}`;

const COMMENT = new TextEncoder().encode(":\n");

const stream = (body?: string | ReadableStream): Response =>
  new Response(body ?? new ReadableStream({ start: (controller) => controller.enqueue(COMMENT) }), {
    headers: { "Content-Type": "text/event-stream" },
  });
const listAt = (position: string, ...ids: readonly number[]): Response =>
  new Response(`[${ids.map((id) => todo(id))}]`, { headers: { "Todo-Position": position } });

/** Returns a client whose requests get scripted responses, and the requests. By default, the stream is silent. */
function scripted(
  answer: (method: string, path: string, signal: AbortSignal) => Promise<Response> | Response | undefined,
) {
  const requests: string[] = [];
  const api = new TodoApi({
    baseUrl: "http://todo.example",
    retries: 0,
    fetch: async (url, { method = "", signal }) => {
      if (signal == null) throw new Error("a request without a signal");
      const path = url.slice("http://todo.example/api".length);
      requests.push(`${method} ${path}`);
      return (await answer(method, path, signal)) ?? (path.startsWith("/events") ? stream() : listAt("e-0"));
    },
  });
  return { api, requests };
}

function startStream() {
  const streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  const signals: AbortSignal[] = [];
  const { api } = scripted((_method, path, signal) => {
    signals.push(signal);
    if (!path.startsWith("/events")) return listAt("e-0", 1, 2, 3);
    return stream(
      new ReadableStream({
        start: (controller) => {
          streams.push(controller);
          controller.enqueue(COMMENT);
          signal.addEventListener("abort", () => controller.error(signal.reason));
        },
      }),
    );
  });
  const send = (text: string): void => streams.at(-1)?.enqueue(new TextEncoder().encode(text));
  const isAborted = (): boolean => signals.at(-1)?.aborted === true;
  return { api, send, close: () => streams.at(-1)?.close(), isAborted };
}

async function stateWhere(
  states: AsyncGenerator<LiveList, void, undefined>,
  meets: (state: LiveList) => boolean,
): Promise<LiveList> {
  while (true) {
    const { value } = await states.next();
    if (value === undefined) throw new Error("the states ended");
    if (meets(value)) return value;
  }
}

const isConnected = ({ status }: LiveList): boolean => status === "connected";
const titles = ({ todos }: LiveList): string[] =>
  todos.map(({ title, done }) => (done ? `(${title})` : title));

describe("follow", () => {
  test("yields one state for changes that arrive together, and shares what did not change", async () => {
    const { api, send } = startStream();
    const states = api.follow()[Symbol.asyncIterator]();
    const before = await stateWhere(states, isConnected);
    expect(before).toMatchObject({ position: "e-0", status: "connected" });
    send(messages(1, ["created", todo(10)], ["updated", todo(2, true)], ["deleted", '{"id":1}']));
    const after = await stateWhere(states, () => true);
    expect(titles(after)).toEqual(["(2)", "3", "10"]);
    expect(after.position).toBe("e-3");
    expect(titles(before)).toEqual(["1", "2", "3"]);
    expect(after.todos[1]).toBe(before.todos[2]);
    send("id: e-7\nevent: position\ndata: {}\n\n");
    const later = await stateWhere(states, () => true);
    expect([later.position, later.todos === after.todos]).toEqual(["e-7", true]);
  });

  test("yields only the latest state to a slow reader", async () => {
    const { api, send } = startStream();
    const list = api.follow();
    const states = list[Symbol.asyncIterator]();
    await stateWhere(states, isConnected);
    const published: unknown[] = [];
    const stop = list.subscribe(({ position }) => published.push(position));
    for (const id of [4, 5, 6]) {
      send(messages(id, ["created", todo(id)]));
      await until(() => published.includes(`e-${id}`), "the next state");
    }
    stop();
    expect(await stateWhere(states, () => true)).toMatchObject({ position: "e-6" });
  });

  test("does not depend on what the reader does with its array", async () => {
    const { api, send } = startStream();
    const states = api.follow()[Symbol.asyncIterator]();
    const { todos } = await stateWhere(states, isConnected);
    todos.reverse().pop();
    send(messages(1, ["updated", todo(3, true)], ["created", todo(4)]));
    expect(titles(await stateWhere(states, () => true))).toEqual(["1", "2", "(3)", "4"]);
  });

  test("passes states to a function until it is stopped", async () => {
    using _clock = hurry();
    const { api, send, isAborted } = startStream();
    const states: LiveList[] = [];
    const stop = api.follow().subscribe((state) => states.push(state));
    await until(() => states.some(isConnected), "the list is connected");
    send(messages(1, ["deleted", '{"id":3}']));
    stop();
    expect(isAborted()).toBe(true);
    await oneFrame();
    expect(states.every(({ todos }) => todos.length === 3)).toBe(true);
  });

  test("ends at once when the iteration is returned or the signal aborts", async () => {
    const { api, isAborted } = startStream();
    const leaving = new AbortController();
    const leave = [(states: AsyncGenerator<LiveList, void>) => states.return(), async () => leaving.abort()];
    for (const end of leave) {
      const states = api.follow(leaving)[Symbol.asyncIterator]();
      await stateWhere(states, isConnected);
      const pending = states.next();
      await end(states);
      expect(await pending).toEqual({ done: true, value: undefined });
      expect(isAborted()).toBe(true);
    }
  });

  test("reports a lost connection with its error, and then the new one", async () => {
    const { api, close } = startStream();
    const states = api.follow()[Symbol.asyncIterator]();
    const { todos } = await stateWhere(states, isConnected);
    close();
    const lost = await stateWhere(states, () => true);
    expect(lost).toMatchObject({ status: "disconnected", error: { code: "network_error" } });
    expect(lost.todos).toBe(todos);
    const later = await stateWhere(states, isConnected);
    expect(later.error).toBeUndefined();
  });

  test("throws the error of a rejected request, and passes it to a function as the last state", async () => {
    await using service = startService({ access: { privateMode: true }, network: { onLoopback: true } });
    const api = new TodoApi({ baseUrl: service.url });
    expect(await errorOf(api.follow()[Symbol.asyncIterator]().next())).toMatchObject({
      code: "unauthorized",
    });
    const state = await new Promise((resolve) => api.follow().subscribe(resolve));
    expect(state).toMatchObject({ status: "signed-out", todos: [], error: { code: "unauthorized" } });
  });
});

test("follow passes no state after the last one, although a change waited for its frame", async () => {
  const { api } = scripted((_method, path) =>
    path.startsWith("/events") ? new Response(null, { status: 403 }) : undefined,
  );
  using _clock = hurry();
  const statuses: string[] = [];
  api.follow().subscribe(({ status }) => statuses.push(status));
  await until(() => statuses.includes("failed"), "the last state");
  await oneFrame();
  expect(statuses.at(-1)).toBe("failed");
});

test("follow starts from a list, and requests only what changed since", async () => {
  await using service = startService();
  const writer = new TodoApi({ baseUrl: service.url });
  await writer.create("a");
  const from = await writer.list();
  await writer.create("b");
  const { api, requests } = scripted((_method, path, signal) =>
    fetch(`${service.url}/api${path}`, { signal }),
  );
  const list = api.follow({ from });
  expect(list.getState()).toEqual({ todos: from.todos, position: from.position, status: "connecting" });
  const stop = list.subscribe(() => {});
  await until(() => titles(list.getState()).length === 2, "the change");
  stop();
  expect(titles(list.getState())).toEqual(["a", "b"]);
  expect(requests).toEqual([`GET /events?since=${from.position}`]);
  const page = await writer.list({ limit: 1 });
  expect(() => api.follow({ from: page })).toThrow("from: a page");
});

test("follow goes on after a 500 of the list and of the events, for example of a proxy without a service", async () => {
  const failing = new Set(["/todos", "/events"]);
  const { api } = scripted((_method, path) =>
    failing.delete(path.replace(/\?.*/, "")) ? new Response("no", { status: 500 }) : undefined,
  );
  const states: LiveList[] = [];
  const stop = api.follow().subscribe((state) => states.push(state));
  await until(() => states.some(isConnected), "the list is connected");
  stop();
  expect(states[0]).toMatchObject({ status: "disconnected", error: { status: 500 } });
});

test("follow passes no state twice, and keeps the objects of equal to-dos", async () => {
  await using service = startService();
  const api = new TodoApi({ baseUrl: service.url });
  const list = api.follow();
  const states: LiveList[] = [];
  const stop = list.subscribe((state) => states.push(state));
  await until(() => states.some(isConnected), "the list is connected");
  const { id } = await list.create("a");
  await list.setDone(id, true);
  await list.setDone(id, true);
  await until(async () => states.at(-1)?.position === (await api.list()).position, "all changes");
  const shown = states.map(({ todos, status, position }) => JSON.stringify({ todos, status, position }));
  expect(shown.filter((text, index) => text === shown[index - 1])).toEqual([]);
  const ticked = states.flatMap(({ todos }) => todos.filter(({ done }) => done));
  expect(new Set(ticked).size).toBe(1);
  stop();
});

const LIST = { todos: [{ id: "1", title: "1", done: false }], position: "e-0" };
describe("a followed list", () => {
  test("goes on if the last subscriber leaves and another one comes within a frame", async () => {
    const { api } = scripted(() => undefined);
    const list = api.follow({ from: LIST });
    const leave = list.subscribe(() => {});
    const created = errorOf(list.create("2"));
    leave();
    const states: LiveList[] = [];
    const stop = list.subscribe((state) => states.push(state));
    await created;
    await until(() => states.some(isConnected), "a state for the second subscriber");
    stop();
  });

  test("is not connected between a resync and the new list", async () => {
    let isFirst = true;
    const { api, requests } = scripted((_method, path) => {
      if (path === "/todos") return new Response("busy", { status: 503, headers: { "Retry-After": "60" } });
      if (!isFirst) return undefined;
      isFirst = false;
      return stream("id: e-0\nevent: position\ndata: {}\n\nid: f-1\nevent: resync\ndata: {}\n\n");
    });
    const list = api.follow({ from: LIST });
    const statuses: string[] = [];
    const stop = list.subscribe(({ status }) => statuses.push(status));
    await until(() => requests.includes("GET /todos"), "the request of a new list");
    await until(() => list.getState().status === "disconnected", "the failure");
    stop();
    expect(statuses.at(-1)).not.toBe("connected");
  });

  test("shows a new to-do once while the answer is awaited and the list of another store arrives", async () => {
    const [requested, loaded] = [Promise.withResolvers<void>(), Promise.withResolvers<Response>()];
    const { api } = scripted((method, path) => {
      if (method === "POST") return new Promise(() => {});
      if (path.startsWith("/events"))
        return path.includes("f-") ? undefined : stream("id: f-1\nevent: resync\ndata: {}\n\n");
      requested.resolve();
      return loaded.promise;
    });
    const list = api.follow({ from: { todos: [{ id: "9", title: "9", done: false }], position: "e-0" } });
    const stop = list.subscribe(() => {});
    await requested.promise;
    list.create("1").catch(() => {});
    loaded.resolve(listAt("f-2", 1));
    await until(() => list.getState().position === "f-2", "the new list");
    expect(titles(list.getState())).toEqual(["1"]);
    stop();
  });

  test("does not change the list that it starts from", async () => {
    const { api } = scripted((_method, path) =>
      path.startsWith("/events") ? stream('id: e-1\nevent: deleted\ndata: {"id":1}\n\n') : undefined,
    );
    const from = { ...LIST, todos: LIST.todos.slice() };
    const list = api.follow({ from });
    list.getState().todos.push({ id: "9", title: "the caller's", done: false });
    expect(from.todos).toEqual(LIST.todos);
    const stop = list.subscribe(() => {});
    await until(() => list.getState().todos.length === 0, "the deletion");
    stop();
    expect(from.todos).toEqual(LIST.todos);
  });

  test("passes states to a function once for each of its subscriptions", async () => {
    const { api } = scripted(() => undefined);
    const list = api.follow({ from: LIST });
    const states: LiveList[] = [];
    const onState = (state: LiveList): number => states.push(state);
    const stops = [list.subscribe(onState), list.subscribe(onState)];
    stops[0]?.();
    await until(() => states.some(isConnected), "a state for the second subscription");
    stops[1]?.();
    expect(states.filter(isConnected)).toHaveLength(1);
  });

  test("sends no write to a to-do that was not created", async () => {
    const { api, requests } = scripted((method) =>
      method === "POST" ? new Response("no", { status: 500 }) : undefined,
    );
    const list = api.follow({ from: LIST });
    const created = errorOf(list.create("2"));
    const id = list.getState().todos[1]?.id ?? "";
    const ticked = errorOf(list.setDone(id, true));
    expect([await created, await ticked]).toMatchObject([{ status: 500 }, { code: "todo_not_found" }]);
    expect(requests).toEqual(["POST /todos"]);
    expect(titles(list.getState())).toEqual(["1"]);
  });

  test("accepts the temporary ids of the latest 1,000 new to-dos", async () => {
    let created = 1;
    const { api, requests } = scripted((method, path) =>
      method === "POST" || path !== "/todos"
        ? new Response(todo(++created), { headers: { "Todo-Position": `e-${created}` } })
        : undefined,
    );
    const list = api.follow({ from: LIST });
    const all = Array.from({ length: 1001 }, () => list.create("2"));
    const [, first = LIST.todos[0], second = first] = list.getState().todos;
    await Promise.all(all);
    await list.setDone(second?.id ?? "", true);
    expect(requests.at(-1)).toBe("PATCH /todos/3");
    expect(await errorOf(list.setDone(first?.id ?? "", true))).toMatchObject({ code: "todo_not_found" });
    expect(requests).toHaveLength(1002);
  });

  test("loads the list again if the service answers a write in another epoch", async () => {
    const { api, requests } = scripted((method, path) => {
      if (method === "POST") return new Response(todo(7), { headers: { "Todo-Position": "f-1" } });
      return path === "/todos" ? listAt("f-1") : undefined;
    });
    const list = api.follow({ from: LIST });
    const stop = list.subscribe(() => {});
    await until(() => isConnected(list.getState()), "the first connection");
    await list.create("7");
    expect(titles(list.getState())).toEqual(["1", "7"]);
    await until(() => list.getState().position === "f-1", "the other list");
    stop();
    expect(titles(list.getState())).toEqual([]);
    expect(requests.filter((request) => request === "GET /todos")).toHaveLength(1);
  });

  test("publishes many writes as one state", async () => {
    const { api } = scripted(() => new Response("no", { status: 500 }));
    const list = api.follow({ from: LIST });
    const counts: number[] = [];
    const stop = list.subscribe(({ todos }) => counts.push(todos.length));
    const writes = Array.from({ length: 50 }, (_, index) => errorOf(list.create(`new ${index}`)));
    expect(list.getState().todos).toHaveLength(51);
    expect(counts).toEqual([]);
    await Promise.all(writes);
    await until(() => list.getState().todos.length === 1, "all rejections");
    stop();
    expect(counts.length).toBeLessThan(50);
  });
});
