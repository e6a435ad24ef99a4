import { expect, test } from "bun:test";
import { startBalancer } from "../deploy/topology.ts";
import { type Command, runTodo, succeed } from "./command.ts";
import { callTool, connectHttpClient, PROTOCOL_VERSIONS } from "./mcp-client.ts";
import { startPostgres, whyNoDatabase } from "./postgres.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const REPLICAS = 3;

/** Creates an API key. Returns its token. */
async function createKey(
  variables: Readonly<Record<string, string>>,
  name: string,
  scope: "read" | "write",
): Promise<string> {
  const output = await succeed(runTodo(["keys", "create", name, "--scope", scope], variables));
  return /todo_\w{49}/.exec(output)?.[0] ?? "";
}

test.skipIf(skipFor(whyNoDatabase ?? whyMissing("nginx")))(
  `${REPLICAS} private replicas behind nginx serve assistants and enforce the scopes of their API keys`,
  async () => {
    await using stack = new AsyncDisposableStack();
    const postgres = stack.use(await startPostgres());
    const variables = { TODO_STORE: await postgres.newDatabase() };
    const reader = await createKey(variables, "reader", "read");
    const writer = await createKey(variables, "writer", "write");
    const serve = (): Command =>
      stack.use(
        runTodo(["serve", "--port", "0", "--private", "--mcp", "--access-log"], {
          ...variables,
          TODO_TRUSTED_PROXY: "127.0.0.1",
          // The balancer of this test ends no TLS.
          TODO_ALLOW_BASIC_OVER_HTTP: "on",
        }),
      );
    const replicas = Array.from({ length: REPLICAS }, serve);
    const url = await startBalancer(stack, await Promise.all(replicas.map((replica) => replica.url)));
    expect((await fetch(`${url}/mcp`, { method: "POST" })).status).toBe(401);

    for (const [index, version] of PROTOCOL_VERSIONS.entries()) {
      const connect = (token: string) =>
        connectHttpClient(version, `${url}/mcp`, { Authorization: `Bearer ${token}` });
      await using writing = await connect(writer);
      await using reading = await connect(reader);
      const todo = { id: String(index + 1), title: `with ${version}`, done: false };
      const add = { todos: [{ title: todo.title, idempotencyKey: version }] };
      // Each request may reach another replica.
      for (let time = 0; time < REPLICAS; time++)
        expect((await callTool(writing, "add_todos", add)).structured).toEqual({ todos: [todo] });
      expect((await callTool(writing, "set_done", { ids: [todo.id], done: true })).isError).toBe(false);
      expect(JSON.stringify((await callTool(reading, "find_todos")).structured)).toContain(
        JSON.stringify({ ...todo, done: true }),
      );
      for (const [name, given] of [
        ["add_todos", { todos: [{ title: "x" }] }],
        ["set_done", { ids: [todo.id], done: false }],
        ["delete_todos", { ids: [todo.id] }],
      ] as const)
        expect(await callTool(reading, name, given)).toMatchObject({
          isError: true,
          text: { code: "insufficient_scope" },
        });
    }
    await until(
      () => replicas.every((replica) => replica.stdout().includes('"path":"/mcp"')),
      "each replica has answered assistants",
    );

    for (const replica of replicas) replica.kill("SIGTERM");
    expect(await Promise.all(replicas.map((replica) => replica.exited))).toEqual(replicas.map(() => 0));
  },
  300_000,
);
