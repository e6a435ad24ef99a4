/** GET /api/todos and GET /api/todos/:id (section 4). */
import type { Cases } from "../case.ts";
import { type Json, ownProperty } from "../target-client.ts";

export const cases: Cases = {
  async "list.200"(client) {
    (await client.send("GET", "/api/todos")).expectStatus(200);
  },

  async "list.array"(client) {
    await client.create();
    const response = await client.send("GET", "/api/todos");
    response.expect(Array.isArray(response.json), "a JSON array");
  },

  async "list.complete"(client) {
    const unchanged = await client.create();
    const changed = await client.create();
    const deleted = await client.createAndDelete();
    await client.send("PATCH", `/api/todos/${changed.id}`, { json: { done: true } });
    const { response, todos } = await client.list();
    const withId = (id: bigint) => todos.filter((todo) => ownProperty(todo, "id") === id);
    const expectOnce = (id: bigint, title: string, done: boolean) => {
      const [first, ...others] = withId(id);
      const matches = ownProperty(first, "title") === title && ownProperty(first, "done") === done;
      response.expect(
        others.length === 0 && matches,
        `the to-do ${id} once, with its title and done=${done}`,
      );
    };
    expectOnce(unchanged.id, unchanged.title, false);
    expectOnce(changed.id, changed.title, true);
    response.expect(withId(deleted).length === 0, `no to-do ${deleted}, because it was deleted`);
  },

  // Twelve, so that an empty server assigns ids with one and with two digits. The PATCH must not change the order.
  async "list.order"(client) {
    const first = await client.create();
    for (let n = 0; n < 11; n += 1) await client.create();
    await client.send("PATCH", `/api/todos/${first.id}`, { json: { done: true } });
    const { response, todos } = await client.list();
    response.expect(
      todos.every((todo, index) => isAfter(todo, todos[index - 1])),
      "ascending ids",
    );
  },

  // The to-dos are deleted at once, so that a limited list does not hide those of later cases.
  async "list.unlimited"(client) {
    const ids: bigint[] = [];
    try {
      while (ids.length <= 100) ids.push((await client.create()).id);
      const { response, todos } = await client.list();
      const listed = new Set(todos.map((todo) => ownProperty(todo, "id")));
      const missing = ids.filter((id) => !listed.has(id)).length;
      response.expect(missing === 0, `all ${ids.length} new to-dos in the list, but ${missing} are missing`);
    } finally {
      await client.cleanup(ids);
    }
  },

  async "get.200"(client) {
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

function isAfter(todo: Json, before: Json | undefined): boolean {
  if (before === undefined) return true;
  const [id, previous] = [ownProperty(todo, "id"), ownProperty(before, "id")];
  return typeof id === "bigint" && typeof previous === "bigint" && id > previous;
}
