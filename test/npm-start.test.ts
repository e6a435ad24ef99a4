import { expect, setDefaultTimeout, test } from "bun:test";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { ROOT, run } from "./command.ts";
import { freePort } from "./free-port.ts";
import { portClosed, statusOf, unchunked } from "./raw-http.ts";
import { skipFor } from "./skip.ts";
import { whyNoTerminal } from "./terminal.ts";

const CONNECTIONS = 8;
/** A long title, so that a few to-dos make a long list. */
const BODY = JSON.stringify({ title: "😀".repeat(120) });
const HEAD = [
  "POST /api/todos HTTP/1.1",
  "Host: localhost",
  "Content-Type: application/json",
  `Content-Length: ${Buffer.byteLength(BODY)}`,
  "",
  "",
].join("\r\n");
const LIST = "GET /api/todos HTTP/1.1\r\nHost: localhost\r\n\r\n";

/** The time limit of a shutdown, and what a busy machine may add. */
const STOPPED_WITHIN_MS = 10_000 + 20_000;
/** npm and the server treat two signals within 250 ms as one. */
const APART_MS = 350;
const LIMIT_MS = 120_000;
setDefaultTimeout(LIMIT_MS);

interface Answer {
  readonly id: string | undefined;
  readonly status: number | undefined;
  readonly closes: boolean;
}

interface Conversation {
  readonly socket: Socket;
  readonly answers: readonly Answer[];
  /** Resolves when the connection is closed, with the bytes after the last complete response. */
  readonly ended: Promise<string>;
}

/** Sends bytes over a connection, and `next` after each complete response, until a response says that the connection closes. */
function converse(port: number, first: string, next?: string): Conversation {
  const socket = connect(port, "127.0.0.1", () => socket.write(first));
  const { promise, resolve } = Promise.withResolvers<string>();
  const answers: Answer[] = [];
  let unread = "";
  socket.setEncoding("latin1");
  socket.on("data", (chunk) => {
    unread += chunk;
    const head = /^.*?\r\n\r\n/s.exec(unread)?.[0] ?? "";
    const end = head.length + Number(/^content-length: (\d+)\r$/im.exec(head)?.[1]);
    if (!(unread.length >= end)) return;
    unread = unread.slice(end);
    const closes = /^connection: close\r$/im.test(head);
    answers.push({ id: /^x-request-id: (.+)\r$/im.exec(head)?.[1], status: statusOf(head), closes });
    if (next !== undefined && !closes) socket.write(next);
  });
  // A connection that is refused, or closed while a request is on its way, has no entry in `answers`.
  socket.on("error", () => {});
  socket.on("close", () => resolve(unread));
  return { socket, answers, ended: promise };
}

/** Resolves when the server has read the request of a conversation, because it answers a later one. */
async function accepted({ socket }: Conversation, port: number): Promise<void> {
  if (socket.connecting) await once(socket, "connect");
  await (await fetch(`http://127.0.0.1:${port}/livez`, { keepalive: false })).text();
}

/** Returns the number of responses that some connections have received. */
const answerCount = (connections: readonly Conversation[]): number =>
  connections.reduce((total, { answers }) => total + answers.length, 0);

interface Server extends AsyncDisposable {
  readonly port: number;
  /** Resolves with npm's exit code and the time since the last signal. */
  readonly ended: () => Promise<{ readonly code: number | undefined; readonly ms: number }>;
  /** Sends a signal to npm. */
  readonly signal: (signal: NodeJS.Signals) => void;
  readonly log: () => readonly Readonly<Record<string, unknown>>[];
  /** Resolves when the log contains the message. */
  readonly says: (message: string) => Promise<void>;
}

async function npmStart(): Promise<Server> {
  const port = await freePort();
  const npm = run(["npm", "start", "--", "--port", String(port), "--access-log"]);
  await npm.url;
  let signalled = 0;
  const log: Server["log"] = () =>
    npm
      .stdout()
      .match(/^\{.*\}$/gm)
      ?.map((line) => JSON.parse(line)) ?? [];
  const server = Number(log().find(({ msg }) => msg === "listening")?.pid);
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
    port,
    ended: async () => ({ code: await npm.exited, ms: performance.now() - signalled }),
    signal: (signal) => {
      signalled = performance.now();
      npm.kill(signal);
    },
    log,
    says: async (message) => {
      while (!npm.stdout().includes(`"msg":"${message}"`)) await Bun.sleep(5);
    },
    [Symbol.asyncDispose]: async () => {
      clearTimeout(limit);
      await npm[Symbol.asyncDispose]();
      // An npm that is killed leaves its server running.
      kill();
    },
  };
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`npm start ends on ${signal} to npm, and responds to all accepted requests`, async () => {
    await using server = await npmStart();
    const load = Array.from({ length: CONNECTIONS }, () => converse(server.port, HEAD + BODY, HEAD + BODY));
    // A list of more than 1 MB is streamed.
    while (answerCount(load) < 5000) await Bun.sleep(10);
    const writer = converse(server.port, HEAD + BODY.slice(0, 20));
    const reader = converse(server.port, LIST);
    await once(reader.socket, "data");
    reader.socket.pause();

    server.signal(signal);
    await server.says("stopping");
    await Promise.all(load.map(({ ended }) => ended));
    await portClosed(server.port);
    writer.socket.write(BODY.slice(20));
    reader.socket.resume();

    const list: unknown[] = JSON.parse(unchunked(await reader.ended));
    expect(list.length).toBeGreaterThan(CONNECTIONS);
    expect(await writer.ended).toBe("");
    expect(writer.answers).toEqual([{ id: expect.any(String), status: 201, closes: true }]);
    expect((await server.ended()).code).toBe(0);
    expect((await Promise.all(load.map(({ ended }) => ended))).join("")).toBe("");
    const answered = [...load, writer].flatMap(({ answers }) => answers.map(({ id }) => id));
    const accepted = server.log().flatMap(({ id, method }) => (method === "POST" ? [id] : []));
    expect(new Set<unknown>(answered)).toEqual(new Set(accepted));
    // No request exceeded the time limit of a shutdown.
    const messages = server.log().map(({ msg }) => msg);
    expect(messages.slice(messages.lastIndexOf("request") + 1)).toEqual(["stopped"]);
  });
}

// These tests wait for timeouts and use no CPU, so they run concurrently.

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test.concurrent(`a second ${signal} to npm ends pending requests immediately`, async () => {
    await using server = await npmStart();
    const hanging = converse(server.port, HEAD);
    await accepted(hanging, server.port);
    server.signal(signal);
    await server.says("stopping");
    await Bun.sleep(APART_MS);
    server.signal(signal);
    expect((await server.ended()).code).toBe(1);
    await hanging.ended;
    expect(hanging.answers).toEqual([]);
    expect(server.log().at(-1)).toMatchObject({ msg: "exiting immediately" });
  });
}

test.concurrent("npm start ends within 10 seconds of the signal, even with pending requests", async () => {
  await using server = await npmStart();
  const hanging = converse(server.port, HEAD);
  await accepted(hanging, server.port);
  server.signal("SIGTERM");
  // Half a request, because the listener closes idle connections by itself.
  for (let sent = 0; sent < 14; sent++) {
    await Bun.sleep(500);
    hanging.socket.write(" ");
  }
  const { code, ms } = await server.ended();
  expect(code).toBe(0);
  expect(ms).toBeLessThan(STOPPED_WITHIN_MS);
  expect(server.log().map(({ msg }) => msg)).toContain("requests did not finish in time and were aborted");
});

test.concurrent.skipIf(skipFor(whyNoTerminal))(
  "Ctrl-C in a terminal ends npm start after it has responded to all accepted requests",
  async () => {
    const terminal = Bun.spawn(["script", "-qec", "exec npm start -- --port 0", "/dev/null"], {
      cwd: ROOT,
      env: { PATH: process.env.PATH, HOME: process.env.HOME },
      stdin: "pipe",
      stdout: "pipe",
    });
    try {
      let shown = "";
      const reading = (async () => {
        const decoder = new TextDecoder();
        for await (const chunk of terminal.stdout) shown += decoder.decode(chunk, { stream: true });
      })();
      const seen = async (text: string): Promise<void> => {
        while (!shown.includes(text)) await Bun.sleep(5);
      };
      await seen("/admin/");
      const port = Number(/:(\d+)\/admin/.exec(shown)?.[1]);
      const writer = converse(port, HEAD + BODY.slice(0, 20));
      await accepted(writer, port);
      terminal.stdin.write("\x03");
      terminal.stdin.flush();
      await seen("stopping");
      // By now, npm has sent the signal a second time.
      await Bun.sleep(100);
      writer.socket.write(BODY.slice(20));
      expect(await writer.ended).toBe("");
      expect(writer.answers).toEqual([{ id: undefined, status: 201, closes: true }]);
      expect(await terminal.exited).toBe(0);
      await reading;
      expect(shown).toContain("stopped");
      expect(shown).not.toContain("at once");
    } finally {
      // When its terminal is closed, the program gets a SIGHUP.
      terminal.kill("SIGKILL");
    }
  },
);
