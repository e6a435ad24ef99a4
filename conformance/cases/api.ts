/** Rules for the to-do routes that need a path or a byte that the model does not see (sections 1, 4, 9). */
import examples from "../examples.json" with { type: "json" };
import { ownProperty } from "../json.ts";
import type { TargetClient } from "../target-client.ts";

export const cases = {
  async "api.prefix"(client: TargetClient) {
    await expectNotServed(client, ["/todos", "/api", "/admin/todos"]);
  },

  async "api.no-version"(client: TargetClient) {
    await expectNotServed(client, examples.versionPrefixes);
  },

  // Some clients add such a query to bypass caches. The specification does not show whether a server may refuse it.
  async "list.query"(client: TargetClient) {
    const response = await client.send("GET", "/api/todos?_=1");
    response.expect(response.status !== 404, "a status other than 404");
  },

  // sendRaw, because fetch hides bytes that follow a 204.
  async "delete.empty"(client: TargetClient) {
    const response = await client.sendRaw("DELETE", `/api/todos/${await client.create("kit: no body")}`);
    response.expect(!response.ok || response.text === "", "no body");
  },

  // The first part ends within a character, because some servers decode each part alone.
  async "create.in-parts"(client: TargetClient) {
    const title = "kit: sent in parts, é";
    const body = Buffer.from(JSON.stringify({ title }));
    await client.sendRaw("POST", "/api/todos", [body.subarray(0, -3), body.subarray(-3)]);
    const list = await client.send("GET", "/api/todos");
    const created = (Array.isArray(list.json) ? list.json : []).filter((todo) =>
      String(ownProperty(todo, "title")).startsWith("kit: sent"),
    );
    for (const todo of created) await client.send("DELETE", `/api/todos/${ownProperty(todo, "id")}`);
    list.expect(ownProperty(created[0], "title") === title, `a to-do with the title “${title}”`);
  },

  async "get.not-modified"(client: TargetClient) {
    const id = await client.create("kit: not modified");
    for (const [done, path] of ["/api/todos", `/api/todos/${id}`].entries()) {
      const tag = (await client.send("GET", path)).headers.get("etag") ?? '""';
      await client.send("PATCH", `/api/todos/${id}`, { body: `{"done":${done === 0}}` });
      const headers = { "if-none-match": tag };
      const response = await client.send("GET", path, { headers, note: "with the ETag from before a PATCH" });
      response.expect(response.status !== 304, "the changed to-do");
    }
  },

  // A long list, because many servers encode only long responses.
  async "json.negotiated"(client: TargetClient) {
    for (let n = 0; n < 20; n += 1) await client.create("kit: one of a long list".padEnd(100, "."));
    const headers = { accept: "text/html, */*;q=0.8", "accept-encoding": "identity" };
    const note = "for a client that prefers HTML and accepts no content coding";
    const response = await client.send("GET", "/api/todos", { headers, note });
    const isPlain = Array.isArray(response.json) && !response.headers.has("content-encoding");
    response.expect(isPlain, "a JSON array without a content coding");
  },
};

async function expectNotServed(client: TargetClient, prefixes: readonly string[]): Promise<void> {
  const id = await client.create("kit: one prefix");
  for (const prefix of prefixes) {
    const response = await client.send("GET", `${prefix}/${id}`);
    response.expect(!(response.ok && ownProperty(response.json, "id") === id), "no to-do at this path");
  }
}
