/** DELETE /api/todos/:id, and requests for absent to-dos (sections 3 and 4). */
import type { Cases } from "../case.ts";
import { ownProperty } from "../target-client.ts";

export const cases: Cases = {
  async "delete.204"(client) {
    const { id } = await client.create();
    (await client.send("DELETE", `/api/todos/${id}`)).expectStatus(204);
  },

  // sendRaw, because fetch hides bytes that follow a 204.
  async "delete.empty"(client) {
    const { id } = await client.create();
    const response = await client.sendRaw("DELETE", `/api/todos/${id}`);
    response.expect(!response.ok || response.text === "", "no body");
  },

  // Reads the to-do and the list first, so that a cache would contain them. Another to-do keeps the list from being empty.
  async "delete.removes"(client) {
    const [{ id }] = [await client.create(), await client.create()];
    await client.send("GET", `/api/todos/${id}`);
    await client.list();
    await client.send("DELETE", `/api/todos/${id}`);
    const fetched = await client.send("GET", `/api/todos/${id}`);
    fetched.expect(!fetched.ok, "no to-do, because it was deleted");
    const { response, todos } = await client.list();
    response.expect(
      !todos.some((todo) => ownProperty(todo, "id") === id),
      `no to-do ${id}, because it was deleted`,
    );
  },

  async "delete.either-state"(client) {
    for (const done of [false, true]) {
      const { id } = await client.create();
      await client.send("PATCH", `/api/todos/${id}`, { json: { done } });
      const response = await client.send("DELETE", `/api/todos/${id}`);
      response.expect(response.ok, `a 2xx status with done=${done}`);
    }
  },

  async "delete.only-one"(client) {
    const [before, deleted, after] = await client.createWithSameTitle();
    await client.send("DELETE", `/api/todos/${deleted.id}`);
    for (const { id } of [before, after]) {
      const response = await client.send("GET", `/api/todos/${id}`);
      response.expect(response.ok, `this to-do, because only ${deleted.id} was deleted`);
    }
  },

  async "delete.once"(client) {
    const { id } = await client.create();
    const responses = await Promise.all(
      Array.from({ length: 8 }, () => client.send("DELETE", `/api/todos/${id}`)),
    );
    const [first, ...more] = responses.filter(({ ok }) => ok);
    responses[0]?.expect(first !== undefined, "one of 8 concurrent DELETEs to succeed");
    more[0]?.expect(false, "only one of 8 concurrent DELETEs to succeed");
  },

  // In the race, an update that read the to-do before the DELETE must not store it again.
  async "absent.unchanged"(client) {
    const deleted = await client.createAndDelete();
    const unassigned = deleted + 1_000_000_000_000n;
    for (const id of [deleted, unassigned]) {
      const path = `/api/todos/${id}`;
      await client.send("PATCH", path, { json: { done: true } });
      await client.send("DELETE", path);
      const response = await client.send("GET", path);
      response.expect(!response.ok, "no to-do, because none was created");
    }
    for (let round = 0; round < 5; round += 1) {
      const path = `/api/todos/${(await client.create()).id}`;
      const update = () => client.send("PATCH", path, { json: { done: true } });
      await Promise.all([update(), client.send("DELETE", path), update(), update()]);
      const response = await client.send("GET", path);
      response.expect(!response.ok, "no to-do, because it was deleted during the updates");
    }
  },
};
