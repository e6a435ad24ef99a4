import { describe, expect, test } from "bun:test";
import { once } from "node:events";
import { join } from "node:path";
import { jsonLines } from "./call-todo.ts";
import { type Command, run } from "./command.ts";
import { copyProgram } from "./patched-copy.ts";
import { openSocket, request } from "./raw-http.ts";
import { createTodo } from "./served-todos.ts";
import { portOf, serve, stop } from "./server.ts";
import { skipFor, whyNoFile } from "./skip.ts";
import { follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

/** A request whose body never arrives. */
const UPLOAD = request("POST /api/todos", ["Content-Type: application/json", "Content-Length: 99"]);

const folder = temporaryFolder();

const linesOf = (server: Command): { readonly msg: string; readonly time: string }[] =>
  jsonLines(server.stdout());

const messages = (server: Command): string[] => linesOf(server).map(({ msg }) => msg);

/** Resolves when a server has logged that it is shutting down. From then on, it drains. */
const stopping = (server: Command): Promise<void> =>
  until(() => messages(server).includes("stopping"), "the server is stopping");

async function stopBy(signal: NodeJS.Signals): Promise<void> {
  await using server = serve();
  await server.url;
  server.kill(signal);
  expect(await server.exited).toBe(0);
  expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
}

describe("a server that shuts down", () => {
  test("does not wait for connections that have sent nothing or half a request", async () => {
    await using server = serve();
    const port = await portOf(server);
    const whole = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (const bytes of ["", "GET /li", "GET /livez HTTP/1.1\r\nHost: loc", whole])
      await openSocket(port, bytes);
    const last = await openSocket(port, `${whole}GET /`);
    // Its response shows that the server has read what the connections before it have sent.
    await once(last, "data");
    await using waiting = serve();
    await once(await openSocket(await portOf(waiting), `${whole}${UPLOAD}{`), "data");
    waiting.kill("SIGTERM");
    await stopping(waiting);
    server.kill("SIGTERM");
    expect(await Promise.race([waiting.exited.then(() => "it waits"), server.exited])).toBe(0);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test.each(["SIGTERM", "SIGINT", "SIGQUIT"] as const)("closes the store on %s", (signal) => stopBy(signal));

  test("exits immediately at a second signal, but not within 500 ms at the same one", async () => {
    await using server = serve();
    const hanging = await openSocket(await portOf(server), UPLOAD);
    await (await fetch(`${await server.url}/livez`, { keepalive: false })).text();
    server.kill("SIGTERM");
    await stopping(server);
    // Equal signals within 500 ms of the first one are the same, because npm and a terminal both send them.
    await until(() => {
      server.kill("SIGTERM");
      return messages(server).includes("exiting immediately");
    }, "the server exits");
    expect(await server.exited).toBe(1);
    const [first = 0, second = 0] = linesOf(server)
      .slice(-2)
      .map(({ time }) => Date.parse(time));
    expect(second - first).toBeGreaterThan(450);
    hanging.destroy();
  });

  const whyNoHangup = whyNoFile("/proc/self/status");
  test.skipIf(skipFor(whyNoHangup))("closes the store on SIGHUP", () => stopBy("SIGHUP"));

  test("ignores SIGHUP if it is ignored at the start, as with nohup", async () => {
    await using server = run(["sh", "-c", "trap '' HUP; exec bin/todo serve --port 0"]);
    await server.url;
    server.kill("SIGHUP");
    await stop(server);
    expect(server.stdout()).toContain('"signal":"SIGTERM","msg":"stopping"');
  });

  test("logs the reason why the store could not be closed, and exits with 1", async () => {
    const main = await copyProgram(join(folder, "copy"), "src/storage/sqlite/writer.worker.ts", [
      ["      this.#files.close();", 'throw new Error("disk I/O error");'],
    ]);
    const store = `sqlite:${join(folder, "close.db")}`;
    await using server = run(["bin/bun", main, "serve", "--port", "0", "--store", store]);
    await server.url;
    server.kill("SIGTERM");
    expect(await server.exited).toBe(1);
    expect(messages(server)).toEqual([
      "the store did not exist, and was created",
      "listening",
      "stopping",
      "problem with the store",
      "failed to close the store",
    ]);
    expect(server.stdout()).toContain("disk I/O error");
    expect(server.stderr()).not.toContain("disk I/O error");
  });

  test.concurrent("aborts requests that do not finish within 10 seconds", async () => {
    await using server = serve();
    const hanging = await openSocket(await portOf(server), UPLOAD);
    // Half a request, because the listener closes idle connections by itself.
    const drip = setInterval(() => hanging.write(" "), 500);
    await (await fetch(`${await server.url}/livez`, { keepalive: false })).text();
    await stop(server);
    clearInterval(drip);
    const aborted = "requests did not finish in time and were aborted";
    expect(messages(server)).toEqual(["listening", "stopping", aborted, "stopped"]);
  });

  test.concurrent("serves new connections during its stop delay, is not ready, and closes each of them", async () => {
    await using server = serve(["--stop-delay", "10"]);
    const url = await server.url;
    server.kill("SIGTERM");
    await stopping(server);
    const started = performance.now();
    const seen = async (path: string) => {
      const { status, headers } = await fetch(url + path);
      return [status, headers.get("connection")];
    };
    // A tenth of the delay, so that a busy machine can answer in time.
    while (performance.now() - started < 1000) {
      expect(await seen("/readyz")).toEqual([503, "close"]);
      expect(await seen("/api/todos")).toEqual([200, "close"]);
    }
    expect(await server.exited).toBe(0);
    // A health check that fails while the server drains is expected, so the log has no line for it.
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });

  test.concurrent("keeps event streams open during its stop delay, then ends them", async () => {
    await using server = serve(["--stop-delay", "10"]);
    const url = await server.url;
    await using subscriber = await follow(url);
    server.kill("SIGTERM");
    await stopping(server);
    await createTodo(url, "x");
    expect((await subscriber.rest()).map(({ type }) => type)).toEqual(["position", "created"]);
    expect(await server.exited).toBe(0);
  });

  test.concurrent("uses all of its stop delay, even when that exceeds the time limit of a shutdown", async () => {
    await using server = serve(["--stop-delay", "11"]);
    await server.url;
    await stop(server);
    expect(messages(server)).toEqual(["listening", "stopping", "stopped"]);
  });
});
