import { describe, expect, test } from "bun:test";
import { errorOf } from "../test/rejection.ts";
import { filesIn } from "../test/temporary.ts";
import { startTodoService } from "./testing.ts";

const get = (url: string, token?: string): Promise<Response> =>
  fetch(url, token === undefined ? {} : { headers: { Authorization: `Bearer ${token}` } });

describe("startTodoService", () => {
  test("starts a server with to-dos, and stops it", async () => {
    const service = await startTodoService({ todos: ["a", { title: "{b}", done: true }] });
    expect(await (await get(`${service.url}/api/todos`)).json()).toEqual([
      { id: 1, title: "a", done: false },
      { id: 2, title: "{b}", done: true },
    ]);
    expect(await (await get(`${service.url}/api/whoami`, service.token)).text()).toBe("test");
    await service.stop();
    expect(await errorOf(get(service.url))).toBeInstanceOf(Error);
    await service.stop();
  });

  test("lets the test reach the server without the proxy of the variables", async () => {
    const names = ["HTTP_PROXY", "NO_PROXY", "no_proxy"];
    const before = names.map((name) => [name, process.env[name]] as const);
    for (const name of names) delete process.env[name];
    process.env.HTTP_PROXY = "http://127.0.0.1:9";
    try {
      const service = await startTodoService();
      expect((await get(`${service.url}/api/todos`)).status).toBe(200);
      await service.stop();
    } finally {
      for (const [name, value] of before)
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
    }
  });

  test("starts private servers, each of its own", async () => {
    const services = await Promise.all([1, 2].map(() => startTodoService({ private: true })));
    const [one, two] = services;
    expect(one?.url).not.toBe(two?.url ?? "");
    for (const { url, token, stop } of services) {
      expect((await get(`${url}/api/todos`)).status).toBe(401);
      expect(await (await get(`${url}/api/todos`, token)).json()).toEqual([]);
      await stop();
    }
  });

  test("simulates failures, and passes on arguments", async () => {
    const service = await startTodoService({ simulate: "errors=100%", args: ["--max-todos", "1"] });
    expect((await get(`${service.url}/api/todos`)).status).toBe(500);
    await service.stop();
  });

  test.each([
    [{ simulate: "errors=200%" }, '--simulate "errors=200%": must be like'],
    [{ args: ["--max-todo", "1"] }, "Did you mean --max-todos?"],
    [{ todos: ["a", ""] }, "title must not be empty"],
    [{ todos: ["a", "b"], args: ["--max-todos", "1"] }, "raise the limit with --max-todos"],
    [{ seed: "/nowhere.txt" }, "--seed /nowhere.txt: no such file"],
    [{ seed: "x", todos: [] }, "todos and seed are both set"],
    [{ todo: ["a"] }, 'unknown option "todo": did you mean todos?'],
    [{ todos: [{ title: "a", don: true }] }, 'todos[0]: unknown option "don": did you mean done?'],
  ])("rejects %j with a message that says what to do", async (options: object, message) => {
    expect(String(await errorOf(startTodoService(options)))).toContain(message);
  });

  test("ignores lines on standard output that are not JSON", async () => {
    // A preloaded program writes before the server, as a wrapper of the runtime can.
    const noise = filesIn()('console.log("a banner"); console.log("null"); console.log("7");');
    process.env.BUN_OPTIONS = `--preload "${noise}"`;
    try {
      const service = await startTodoService();
      expect((await get(`${service.url}/api/todos`)).status).toBe(200);
      await service.stop();
    } finally {
      delete process.env.BUN_OPTIONS;
    }
  });
});
