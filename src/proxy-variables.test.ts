import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ended, runTodo } from "../test/command.ts";
import { callTool, startStdioClient } from "../test/mcp-client.ts";
import { startService, type TestService } from "../test/service.ts";
import { bypassProxiesOnLoopback } from "./proxy-variables.ts";

function startProxy() {
  const seen: string[] = [];
  const server = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      data(socket, bytes) {
        seen.push(bytes.toString().split("\r\n")[0] ?? "");
        socket.end("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
      },
    },
  });
  return { seen, url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}

describe("with the variables of a proxy", () => {
  let service: TestService;
  let proxy: ReturnType<typeof startProxy>;
  beforeAll(() => {
    service = startService({ credentials: { lookupClient: () => ({ name: "ada" }) } });
    proxy = startProxy();
  });
  afterAll(async () => {
    proxy.stop();
    await service[Symbol.asyncDispose]();
  });

  test.each<[args: string[], variables: Record<string, string>]>([
    [["health"], { http_proxy: "", ALL_PROXY: "" }],
    [["health"], { all_proxy: "", NO_PROXY: "localhost,.corp" }],
    [["health"], { HTTP_PROXY: "", NO_PROXY: "127.0.0.1", no_proxy: "" }],
    [["doctor"], { HTTP_PROXY: "", NO_PROXY: ".corp", no_proxy: ".corp" }],
    [["list", "--url", "http://0.0.0.0"], { HTTP_PROXY: "" }],
  ])("%j sends nothing to the proxy of %j", async (args, variables) => {
    const proxies = Object.entries(variables).map(([name, value]) =>
      /^no/i.test(name) ? [name, value] : [name, proxy.url],
    );
    const address =
      args[1] === undefined ? ["--port", String(service.port)] : ["--url", `${args.at(-1)}:${service.port}`];
    const { code, stderr } = await ended(runTodo([args[0] ?? "", ...address], Object.fromEntries(proxies)));
    expect([code, stderr, proxy.seen]).toEqual([0, "", []]);
  });

  test("todo mcp sends nothing to the proxy", async () => {
    await using client = await startStdioClient("2025-11-25", {
      TODO_URL: service.url,
      HTTP_PROXY: proxy.url,
    });
    expect(await callTool(client, "find_todos", {})).toMatchObject({ isError: false });
    expect(proxy.seen).toEqual([]);
  });

  test.each([
    ["http://todo.example.test", {}, "GET http://todo.example.test/api/todos HTTP/1.1"],
    ["http://localhost.example.test", {}, "GET http://localhost.example.test/api/todos HTTP/1.1"],
    ["http://todo.example.test", { NO_PROXY: ".example.test" }, undefined],
  ])("list --url %s uses the proxy unless NO_PROXY excludes it, %j", async (url, more, request) => {
    const before = proxy.seen.length;
    await ended(runTodo(["list", "--url", url], { HTTP_PROXY: proxy.url, ...more }));
    expect(proxy.seen[before]).toBe(request);
  });
});

test("the exempted addresses follow the user's own, once", () => {
  const variables = { no_proxy: "", NO_PROXY: ".corp" };
  bypassProxiesOnLoopback(variables);
  bypassProxiesOnLoopback(variables);
  const names = ".corp,localhost,127.0.0.1,127.0.0.0/8,[::1],0.0.0.0,[::]";
  expect(variables).toEqual({ no_proxy: names, NO_PROXY: names });
});
