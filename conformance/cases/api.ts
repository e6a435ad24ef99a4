/** Rules for all to-do routes: their prefix, access without credentials, and JSON (sections 1, 4, 5, 9). */
import type { Cases } from "../case.ts";
import { type CapturedResponse, ownProperty, type TargetClient } from "../target-client.ts";

export const cases: Cases = {
  async "api.prefix"(client) {
    const { id } = await client.create();
    const response = await client.send("GET", `/api/todos/${id}`);
    response.expect(ownProperty(response.json, "id") === id, `the to-do ${id}`);
    await expectNotServed(client, `/todos/${id}`, id);
  },

  async "api.no-version"(client) {
    const { id } = await client.create();
    for (const prefix of ["/api/v1", "/v1/api", "/api/v0", "/api/v2"]) {
      await expectNotServed(client, `${prefix}/todos/${id}`, id);
    }
  },

  async "todos.open"(client) {
    for (const response of await everyOperation(client, {})) {
      response.expect(![401, 403, 407].includes(response.status), "no request for credentials");
    }
  },

  async "todos.no-authentication"(client) {
    const invalid = ["Bearer not-a-token", `Basic ${btoa("nobody:wrong")}`, "Nonsense"];
    for (const authorization of invalid) {
      for (const response of await everyOperation(client, { authorization })) {
        response.expect(response.ok, "a 2xx status with any Authorization header");
      }
    }
  },

  async "json.success"(client) {
    const operations = await everyOperation(client, {});
    for (const response of operations.filter(({ ok, text }) => ok && text !== "")) expectJson(response);
  },

  async "json.errors"(client) {
    const absent = `/api/todos/${await client.createAndDelete()}`;
    const { id } = await client.create();
    const patch = { json: { done: true } };
    const errors = [
      await client.send("GET", absent),
      await client.send("PATCH", absent, patch),
      await client.send("DELETE", absent),
      await client.send("GET", "/api/todos/abc"),
      await client.send("PATCH", "/api/todos/abc", patch),
      await client.send("DELETE", "/api/todos/abc"),
      await client.send("POST", "/api/todos", { json: { title: "" } }),
      await client.send("POST", "/api/todos", { json: {} }),
      await client.send("POST", "/api/todos", { body: "{" }),
      await client.send("PATCH", `/api/todos/${id}`, { json: {} }),
      await client.send("PATCH", `/api/todos/${id}`, { body: "{" }),
    ];
    for (const response of errors.filter(({ text }) => text !== "")) expectJson(response);
  },
};

/** Sends one valid request per operation with these headers. Returns the responses. */
async function everyOperation(
  client: TargetClient,
  headers: Record<string, string>,
): Promise<CapturedResponse[]> {
  const note = headers.authorization === undefined ? "without credentials" : "with invalid credentials";
  const post = await client.send("POST", "/api/todos", {
    json: { title: client.uniqueTitle() },
    headers,
    note,
  });
  // If the server rejected it, create a to-do without these headers for the other operations.
  const id = ownProperty(post.json, "id");
  const path = `/api/todos/${typeof id === "bigint" ? id : (await client.create()).id}`;
  return [
    post,
    await client.send("GET", "/api/todos", { headers, note }),
    await client.send("GET", path, { headers, note }),
    await client.send("PATCH", path, { json: { done: true }, headers, note }),
    await client.send("DELETE", path, { headers, note }),
  ];
}

function expectJson(response: CapturedResponse): void {
  response.expect(
    /^application\/([^\s;]+\+)?json\s*(;|$)/i.test(response.contentType),
    "a JSON content type",
  );
  response.expect(response.json !== undefined, "JSON");
}

async function expectNotServed(client: TargetClient, path: string, id: bigint): Promise<void> {
  const response = await client.send("GET", path);
  response.expect(!(response.ok && ownProperty(response.json, "id") === id), "no to-do at this path");
}
