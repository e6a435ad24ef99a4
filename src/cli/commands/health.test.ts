import { expect, test } from "bun:test";
import { networkInterfaces } from "node:os";
import { callTodo } from "../../../test/call-todo.ts";
import { certificateIn } from "../../../test/certificate.ts";
import { freePort } from "../../../test/free-port.ts";
import { startService, startTls } from "../../../test/service.ts";
import { skipFor } from "../../../test/skip.ts";
import { storeWith } from "../../../test/store.ts";
import { temporaryFolder } from "../../../test/temporary.ts";
import { ServiceError } from "../../error.ts";

async function health(args: readonly string[], variables: Readonly<Record<string, string>> = {}) {
  const { code, stdout, stderr } = await callTodo(["health", ...args], variables);
  return { code, said: stdout + stderr };
}

test("health prints nothing and exits with 0 if the server responds", async () => {
  await using service = startService();
  const port = String(service.port);
  for (const args of [[], ["--ready"], ["--host", "0.0.0.0"], ["--host", "localhost"]])
    expect(await health(["--port", port, ...args])).toEqual({ code: 0, said: "" });
  expect(await health([], { TODO_PORT: port })).toEqual({ code: 0, said: "" });
});

test("health distinguishes a live server from a ready server", async () => {
  const away = async () => {
    throw new ServiceError("store_unavailable");
  };
  await using service = startService({ store: storeWith({ position: away }) });
  const port = String(service.port);
  expect((await health(["--port", port])).code).toBe(0);
  const { code, said } = await health(["--port", port, "--ready"]);
  expect([code, said]).toEqual([1, expect.stringContaining("status 503")]);
});

test("health uses TLS if the server has a certificate, which may be for another name", async () => {
  await using server = startTls();
  const { options } = certificateIn(temporaryFolder());
  const port = ["--port", String(server.port)];
  expect(await health([...port, ...options])).toEqual({ code: 0, said: "" });
  expect((await health(port)).code).toBe(1);
});

test("health fails with the reason if no server is running", async () => {
  const { code, said } = await health(["--port", String(await freePort())]);
  expect([code, said]).toEqual([1, expect.stringMatching(/^todo: http:\S+\/livez: connection refused\n$/)]);
});

test("health exits with 1 if the server does not respond in time", async () => {
  using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { code, said } = await health(["--port", String(silent.port)]);
  expect([code, said]).toEqual([1, expect.stringMatching(/^todo: http:\S+\/livez: .*timed out.*\n$/)]);
});

const hasIPv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === "::1"),
);
const whyNoIPv6 = hasIPv6 ? undefined : "loopback has no IPv6 address";

test.skipIf(skipFor(whyNoIPv6))("health accepts IPv6 addresses with and without brackets", async () => {
  await using server = Bun.serve({ hostname: "::1", port: 0, fetch: () => new Response() });
  for (const host of ["::1", "[::1]", "::"])
    expect(await health(["--port", String(server.port), "--host", host])).toEqual({ code: 0, said: "" });
});

test("health rejects port 0", async () => {
  const { code, said } = await health(["--port", "0"]);
  expect([code, said]).toEqual([2, expect.stringContaining("port 0")]);
});
