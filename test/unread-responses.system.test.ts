import { describe, expect, test } from "bun:test";
import { type ClientHttp2Session, type ClientSessionOptions, connect } from "node:http2";
import { certificateIn } from "./certificate.ts";
import { answerOf, ask, POST_TODO, requestUnread } from "./http2.ts";
import { residentMiB } from "./process-status.ts";
import { LONGEST_TITLE } from "./raw-http.ts";
import { serve } from "./server.ts";
import { skipFor, whyNoFile } from "./skip.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();

const CONNECTIONS = 3;
const STREAMS = 256;
/** How many requests are sent and read first, all concurrently. */
const WARM_UPS = 20;
const MAX_GROWTH_MIB = 60;

const { cert, options } = certificateIn(folder);

async function serveTls() {
  const server = serve(options);
  const url = await server.url;
  const open = (settings?: ClientSessionOptions["settings"]): ClientHttp2Session =>
    connect(url.replace("127.0.0.1", "localhost"), { ca: cert, ...(settings && { settings }) });
  return Object.assign(server, { open });
}

/** Sends requests with bodies, at most 100 at a time; throws when one of them fails. */
async function sendAll(
  session: ClientHttp2Session,
  headers: Record<string, string>,
  bodies: readonly object[],
): Promise<void> {
  for (let start = 0; start < bodies.length; start += 100) {
    const batch = bodies.slice(start, start + 100);
    const responses = await Promise.all(batch.map((body) => ask(session, headers, JSON.stringify(body))));
    const failed = responses.find(({ status }) => status !== 200 && status !== 201);
    if (failed !== undefined) throw new Error(`${headers[":path"]}: ${failed.status} ${failed.text}`);
  }
}

const addTodos = (count: number) => (session: ClientHttp2Session) =>
  sendAll(session, POST_TODO, Array<object>(count).fill({ title: LONGEST_TITLE }));

interface Resource {
  readonly path: string;
  readonly leastBytes: number;
  readonly prepare?: (session: ClientHttp2Session) => Promise<void>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly withWrites?: true;
}

const resources: readonly [what: string, resource: Resource][] = [
  ["the API reference", { path: "/docs", leastBytes: 60_000 }],
  ["a list below 1 MiB", { path: "/api/todos", prepare: addTodos(1800), leastBytes: 900_000 }],
  [
    "a list below 1 MiB that changes",
    { path: "/api/todos", prepare: addTodos(1800), leastBytes: 900_000, withWrites: true },
  ],
  ["a list above 1 MiB", { path: "/api/todos", prepare: addTodos(3000), leastBytes: 1_500_000 }],
  ["a page of a list", { path: "/api/todos?limit=1000", prepare: addTodos(1000), leastBytes: 500_000 }],
  [
    "a page of a list that changes",
    { path: "/api/todos?limit=1000", prepare: addTodos(1000), leastBytes: 500_000, withWrites: true },
  ],
];

describe.skipIf(skipFor(whyNoFile("/proc/self/status")))(`${CONNECTIONS * STREAMS} unread streams`, () => {
  test.each(resources)(
    "of %s use little memory",
    async (_what, { path, leastBytes, prepare, headers = {}, withWrites }) => {
      await using server = await serveTls();
      const session = server.open();
      await prepare?.(session);
      // The first requests also compile code, decompress files and grow the heap.
      const reads = Array.from({ length: WARM_UPS }, () => ask(session, { ":path": path, ...headers }));
      for (const { status, text } of await Promise.all(reads)) {
        expect([status, Buffer.byteLength(text) >= leastBytes]).toEqual([200, true]);
      }
      const before = await residentMiB(server.pid);
      const stalled = Array.from({ length: CONNECTIONS }, () => server.open({ initialWindowSize: 0 }));
      for (const connection of stalled) {
        if (withWrites === undefined) {
          await requestUnread(connection, Array<string>(STREAMS).fill(path), headers);
          continue;
        }
        for (let stream = 0; stream < STREAMS; stream++) {
          const patch = { ":method": "PATCH", ":path": `/api/todos/${stream + 1}` };
          await sendAll(session, { ...POST_TODO, ...patch }, [{ done: stream % 2 === 0 }]);
          await requestUnread(connection, [path], headers);
        }
      }
      // The response arrives after the server has finished its work for the streams.
      expect((await ask(session, { ":path": "/livez" })).status).toBe(200);
      const grown = (await residentMiB(server.pid)) - before;
      process.stderr.write(`${grown.toFixed(0)} MiB more\n`);
      expect(grown).toBeLessThan(MAX_GROWTH_MIB);
      for (const connection of [session, ...stalled]) connection.destroy();
    },
  );
});

describe.skipIf(skipFor(whyNoFile("/proc/self/status")))("HTTP/2 streams with unfinished bodies", () => {
  test("do not keep other clients from creating to-dos, and use little memory", async () => {
    await using server = await serveTls();
    const session = server.open();
    await addTodos(STREAMS)(session);
    const before = await residentMiB(server.pid);
    const statuses: (number | undefined)[] = [];
    const slow: ClientHttp2Session[] = [];
    for (let connection = 0; connection < 20; connection++) {
      const attacker = server.open();
      slow.push(attacker);
      const sent = Array.from({ length: STREAMS }, () => {
        const stream = attacker.request(POST_TODO);
        answerOf(stream);
        return new Promise<void>((resolve) => stream.write(" ".repeat(60_000), () => resolve()));
      });
      await Promise.all(sent);
      statuses.push((await ask(session, POST_TODO, '{"title":"x"}')).status);
    }
    expect(statuses).toEqual(Array<number>(slow.length).fill(201));
    const grown = (await residentMiB(server.pid)) - before;
    process.stderr.write(`${grown.toFixed(0)} MiB more\n`);
    expect(grown).toBeLessThan(100);
    for (const connection of [session, ...slow]) connection.destroy();
  });
});
