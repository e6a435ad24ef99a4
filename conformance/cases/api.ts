/** Rules for the to-do routes that need a path or a byte that the model does not see (sections 1, 4, 9). */
import type { Cases } from "../case.ts";
import { ownProperty } from "../json.ts";
import type { TargetClient } from "../target-client.ts";

export const cases = {
  async "api.prefix"(client: TargetClient) {
    await expectNotServed(client, ["/todos", "/api", "/admin/todos"]);
  },

  async "api.no-version"(client: TargetClient) {
    await expectNotServed(client, [
      "/api/v1/todos",
      "/v1/api/todos",
      "/v1/todos",
      "/api/v0/todos",
      "/api/v2/todos",
    ]);
  },

  // sendRaw, because fetch hides bytes that follow a 204.
  async "delete.empty"(client: TargetClient) {
    const response = await client.sendRaw("DELETE", `/api/todos/${await client.create("kit: no body")}`);
    response.expect(!response.ok || response.text === "", "no body");
  },
} as const satisfies Cases;

async function expectNotServed(client: TargetClient, prefixes: readonly string[]): Promise<void> {
  const id = await client.create("kit: one prefix");
  for (const prefix of prefixes) {
    const response = await client.send("GET", `${prefix}/${id}`);
    response.expect(!(response.ok && ownProperty(response.json, "id") === id), "no to-do at this path");
  }
}
