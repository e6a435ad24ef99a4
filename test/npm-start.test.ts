import { expect, setDefaultTimeout, test } from "bun:test";
import type { Socket } from "node:net";
import { join } from "node:path";
import { run } from "./command.ts";
import { freePort } from "./free-port.ts";
import { openPaused, openSocket, portClosed, readToEnd, request, unchunked } from "./raw-http.ts";
import { skipFor } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";
import { openTerminal, whyNoTerminal } from "./terminal.ts";
import { until } from "./until.ts";

/** Their list has more than 1 MB, so it is streamed. */
const TODOS = 5000;
const SEED = join(temporaryFolder(), "seed");
const TODO = { title: "😀".repeat(120), done: false };
const BODY = JSON.stringify(TODO);
const POST = request("POST /api/todos", [
  "Content-Type: application/json",
  `Content-Length: ${Buffer.byteLength(BODY)}`,
]);

/** The server treats two equal signals within 500 ms as one. */
const APART_MS = 600;
const LIMIT_MS = 120_000;
setDefaultTimeout(LIMIT_MS);

/** Sends the head of a request. Resolves when the server has read it, because it answers a later request. */
async function startPost(port: number): Promise<Socket> {
  const writer = await openSocket(port, POST);
  await (await fetch(`http://127.0.0.1:${port}/livez`, { keepalive: false })).text();
  return writer;
}

async function npmStart(...args: readonly string[]) {
  const port = await freePort();
  const npm = run(["npm", "start", "--", "--port", String(port), ...args]);
  await npm.url;
  const messages = () => [...npm.stdout().matchAll(/"msg":"([^"]+)"/g)].map(([, message]) => message);
  const server = Number(/"pid":(\d+)/.exec(npm.stdout())?.[1]);
  const kill = (): void => {
    try {
      process.kill(server, "SIGKILL");
    } catch {
      // npm has ended, as expected.
    }
  };
  // Before the test runner's own timeout, which would leave the server running.
  const limit = setTimeout(kill, LIMIT_MS - 2000);
  return {
    ...npm,
    port,
    messages,
    isStopping: () => until(() => messages().includes("stopping"), "the server is stopping"),
    [Symbol.asyncDispose]: async () => {
      clearTimeout(limit);
      await npm[Symbol.asyncDispose]();
      // An npm that is killed leaves its server running.
      kill();
    },
  };
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test.concurrent(`npm start ends on ${signal} to npm, and responds to all accepted requests`, async () => {
    const lines = Array.from({ length: TODOS }, (_, index) => JSON.stringify({ id: index + 1, ...TODO }));
    await Bun.write(SEED, lines.join("\n"));
    await using server = await npmStart("--seed", SEED);
    const reader = await openPaused(server.port, request("GET /api/todos"));
    const writer = await startPost(server.port);
    server.kill(signal);
    await server.isStopping();
    await portClosed(server.port);
    writer.write(BODY);
    expect(await readToEnd(writer)).toMatch(/^HTTP\/1\.1 201 .*^connection: close\r$/ims);
    expect(JSON.parse(unchunked(await readToEnd(reader)))).toHaveLength(TODOS);
    expect(await server.exited).toBe(0);
    // No request exceeded the time limit of a shutdown.
    expect(server.messages().slice(-2)).toEqual(["stopping", "stopped"]);
  });

  test.concurrent(`a second ${signal} to npm ends pending requests immediately`, async () => {
    await using server = await npmStart();
    const hanging = await startPost(server.port);
    server.kill(signal);
    await server.isStopping();
    await Bun.sleep(APART_MS);
    server.kill(signal);
    expect(await server.exited).toBe(1);
    expect(await readToEnd(hanging).catch(() => "")).toBe("");
    expect(server.messages().at(-1)).toBe("exiting immediately");
  });
}

test.concurrent.skipIf(skipFor(whyNoTerminal))(
  "Ctrl-C in a terminal ends npm start after it has responded to all accepted requests",
  async () => {
    await using terminal = openTerminal("exec npm start -- --port 0");
    await terminal.shows("/admin/");
    const writer = await startPost(Number(/:(\d+)\/admin/.exec(terminal.shown())?.[1]));
    terminal.type("\x03");
    await terminal.shows("stopping");
    writer.write(BODY);
    expect(await readToEnd(writer)).toMatch(/^HTTP\/1\.1 201 .*^connection: close\r$/ims);
    expect(await terminal.exited).toBe(0);
    expect(terminal.shown()).toContain("stopped");
    expect(terminal.shown()).not.toContain("immediately");
  },
);
