import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { hashToken } from "../src/credential/token.ts";
import { runTodo } from "./command.ts";
import { follow } from "./sse.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

test("the event streams of a client end when it is removed from the clients file", async () => {
  const clients = join(folder, "clients");
  const line = (name: string) => `${name}:${hashToken(name).toString("hex")}\n`;
  writeFileSync(clients, line("alice") + line("bob"));
  await using server = runTodo(["serve", "--port", "0", "--private"], { TODO_CLIENTS_FILE: clients });
  const url = await server.url;
  const statusOf = async (token: string): Promise<number> =>
    (await fetch(`${url}/api/todos`, { headers: { Authorization: `Bearer ${token}` } })).status;
  await using stream = await follow(url, { headers: { Authorization: "Bearer alice" } });
  writeFileSync(clients, line("bob"));
  await stream.rest();
  await until(async () => (await statusOf("alice")) === 401, "alice is rejected");
  expect(await statusOf("bob")).toBe(200);
}, 90_000);
