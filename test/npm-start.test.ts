import { expect, setDefaultTimeout, test } from "bun:test";
import type { Socket } from "node:net";
import { run } from "./command.ts";
import { freePort } from "./free-port.ts";
import { LONGEST_TITLE, openSocket, portClosed, readToEnd, request } from "./raw-http.ts";
import { skipFor } from "./skip.ts";
import { openTerminal, whyNoTerminal } from "./terminal.ts";
import { until } from "./until.ts";

const BODY = JSON.stringify({ title: LONGEST_TITLE });
const POST = request("POST /api/todos", [
  "Content-Type: application/json",
  `Content-Length: ${Buffer.byteLength(BODY)}`,
]);

const LIMIT_MS = 120_000;
setDefaultTimeout(LIMIT_MS);

/** Sends the head of a request. Resolves when the server has read it, because it answers a later request. */
async function startPost(port: number): Promise<Socket> {
  const writer = await openSocket(port, POST);
  await (await fetch(`http://127.0.0.1:${port}/livez`, { keepalive: false })).text();
  return writer;
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test.concurrent(`npm start ends on ${signal} to npm, and responds to all accepted requests`, async () => {
    const port = await freePort();
    await using npm = run(["npm", "start", "--", "--port", String(port)]);
    await npm.url;
    const messages = () => [...npm.stdout().matchAll(/"msg":"([^"]+)"/g)].map(([, message]) => message);
    // An npm that is killed leaves its server running, also at the test runner's own timeout.
    const server = Number(/"pid":(\d+)/.exec(npm.stdout())?.[1]);
    const limit = setTimeout(() => process.kill(server, "SIGKILL"), LIMIT_MS - 2000);
    const writer = await startPost(port);
    npm.kill(signal);
    await until(() => messages().includes("stopping"), "the server is stopping");
    await portClosed(port);
    writer.write(BODY);
    expect(await readToEnd(writer)).toMatch(/^HTTP\/1\.1 201 .*^connection: close\r$/ims);
    expect(await npm.exited).toBe(0);
    clearTimeout(limit);
    // No request exceeded the time limit of a shutdown.
    expect(messages().slice(-2)).toEqual(["stopping", "stopped"]);
  });
}

test.concurrent.skipIf(skipFor(whyNoTerminal))("Ctrl-C ends npm start after all open requests", async () => {
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
});
