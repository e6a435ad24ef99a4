import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { hashToken } from "../src/credential/token.ts";
import { type Command, runTodo, succeed } from "./command.ts";
import { startPostgres, whyNoDatabase } from "./postgres.ts";
import { postTodo } from "./served-todos.ts";
import { skipFor } from "./skip.ts";
import { type EventStream, follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const REPLICAS = 3;
const STREAMS = 100;
const ENDS_WITHIN_MS = 20_000;

const folder = temporaryFolder();

const serve = (variables: Readonly<Record<string, string>>): Command =>
  runTodo(["serve", "--port", "0", "--private"], variables);

test.skipIf(skipFor(whyNoDatabase))(
  `${STREAMS} event streams on ${REPLICAS} replicas end within ${ENDS_WITHIN_MS / 1000} s of a revocation, and other streams continue`,
  async () => {
    await using postgres = await startPostgres();
    const variables = { TODO_STORE: await postgres.newDatabase() };
    const [revoked, kept] = await Promise.all(
      ["phone", "laptop"].map(async (name) => {
        const output = await succeed(runTodo(["keys", "create", name], variables));
        return /todo_\w{49}/.exec(output)?.[0] ?? "";
      }),
    );
    await using replicas = await startAll(variables);
    const subscribe = (index: number, authorization: string): Promise<EventStream> =>
      follow(replicas.urls[index % REPLICAS] ?? "", { headers: { Authorization: authorization } });
    const streams = await Promise.all(
      Array.from({ length: STREAMS }, (_, index) =>
        subscribe(index, index % 2 === 0 ? `Bearer ${revoked}` : `Basic ${btoa(`me:${revoked}`)}`),
      ),
    );
    const others = await Promise.all(replicas.urls.map((_url, index) => subscribe(index, `Bearer ${kept}`)));

    await succeed(runTodo(["keys", "revoke", "phone"], variables));
    const revokedAt = performance.now();
    await Promise.all(streams.map((stream) => stream.rest()));
    expect(performance.now() - revokedAt).toBeLessThan(ENDS_WITHIN_MS);
    const headers = { Authorization: `Bearer ${kept}` };
    expect((await postTodo(replicas.urls[0] ?? "", "still followed", headers)).status).toBe(201);
    // A stream begins with its position.
    for (const other of others) expect((await other.take(2)).at(-1)?.type).toBe("created");
    await Promise.all(others.map((other) => other.close()));
  },
  180_000,
);

async function startAll(variables: Readonly<Record<string, string>>) {
  const servers = Array.from({ length: REPLICAS }, () => serve(variables));
  return {
    urls: await Promise.all(servers.map((server) => server.url)),
    [Symbol.asyncDispose]: async () => {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    },
  };
}

test("the event streams of a client end when it is removed from the clients file", async () => {
  const clients = join(folder, "clients");
  const line = (name: string) => `${name}:${hashToken(name).toString("hex")}\n`;
  writeFileSync(clients, line("alice") + line("bob"));
  await using server = serve({ TODO_CLIENTS_FILE: clients });
  const url = await server.url;
  const statusOf = async (token: string): Promise<number> =>
    (await fetch(`${url}/api/todos`, { headers: { Authorization: `Bearer ${token}` } })).status;
  await using stream = await follow(url, { headers: { Authorization: "Bearer alice" } });
  writeFileSync(clients, line("bob"));
  await stream.rest();
  await until(async () => (await statusOf("alice")) === 401, "alice is rejected");
  expect(await statusOf("bob")).toBe(200);
}, 90_000);
