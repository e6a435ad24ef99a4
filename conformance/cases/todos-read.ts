/** GET /api/todos and GET /api/todos/:id (section 4). */
import type { Cases } from "../case.ts";
import { type CapturedResponse, type Json, ownProperty, type TargetClient } from "../target-client.ts";

export const cases: Cases = {
  async "list.200"(client) {
    await client.create();
    (await client.send("GET", "/api/todos")).expectStatus(200);
  },

  async "list.array"(client) {
    await client.create();
    const response = await client.send("GET", "/api/todos");
    response.expect(Array.isArray(response.json), "a JSON array");
  },

  async "list.complete"(client) {
    const [unchanged, changed, deleted] = [
      await client.create(),
      await client.create(),
      await client.create(),
    ];
    const path = `/api/todos/${changed.id}`;
    await expectListed(client, { ...changed, done: false });
    await client.send("PATCH", path, { json: { done: true } });
    await expectListed(client, { ...changed, done: true });
    await client.send("DELETE", `/api/todos/${deleted.id}`);
    await client.send("PATCH", path, { json: { done: false } });
    await expectListed(client, { ...changed, done: false });
    const { response, withId } = await expectListed(client, { ...unchanged, done: false });
    response.expect(withId(deleted.id).length === 0, `no to-do ${deleted.id}, because it was deleted`);
  },

  async "list.unlimited"(client) {
    const ids: bigint[] = [];
    while (ids.length <= 100) ids.push((await client.create()).id);
    const { response, todos } = await client.list();
    const listed = new Set(todos.map((todo) => ownProperty(todo, "id")));
    const missing = ids.filter((id) => !listed.has(id)).length;
    response.expect(missing === 0, `all ${ids.length} new to-dos in the list, but ${missing} are missing`);
  },

  // The server may expect the next id, so that a cache of absent to-dos would contain it.
  async "get.200"(client) {
    await client.send("GET", `/api/todos/${(await client.create()).id + 1n}`);
    const { id } = await client.create();
    (await client.send("GET", `/api/todos/${id}`)).expectStatus(200);
  },

  async "get.answer"(client) {
    const first = await client.create();
    const second = await client.create();
    for (const { id, title } of [first, second]) {
      const response = await client.send("GET", `/api/todos/${id}`);
      const { json } = response;
      const matches =
        ownProperty(json, "id") === id &&
        ownProperty(json, "title") === title &&
        ownProperty(json, "done") === false;
      response.expect(matches, `the to-do ${id} with the title “${title}” and done=false`);
    }
  },
};

/** Expects the list to contain this to-do once. */
async function expectListed(
  client: TargetClient,
  { id, title, done }: { id: bigint; title: string; done: boolean },
): Promise<{ response: CapturedResponse; withId: (id: bigint) => Json[] }> {
  const { response, todos } = await client.list();
  const withId = (id: bigint) => todos.filter((todo) => ownProperty(todo, "id") === id);
  const [first, ...others] = withId(id);
  const matches = ownProperty(first, "title") === title && ownProperty(first, "done") === done;
  response.expect(others.length === 0 && matches, `the to-do ${id} once, with its title and done=${done}`);
  return { response, withId };
}
