/** Rules that need an empty server without other clients: the empty list and the exact ids (sections 2 to 4). */
import type { Cases } from "../case.ts";
import { type Json, ownProperty } from "../target-client.ts";

export const cases: Cases = {
  // This case comes first, because the others create to-dos.
  async "list.empty"(client) {
    const { response, todos } = await client.list();
    response.expect(todos.length === 0, "an empty array");
  },

  async "todo.id.first"(client) {
    const { response, id } = await client.create();
    response.expect(id === 1n, "the id 1 for the first to-do");
  },

  // This case is here so that an empty server assigns ids with one and with two digits.
  async "list.order"(client) {
    const [first, second] = [await client.create(), await client.create()];
    for (let n = 0; n < 10; n += 1) await client.create();
    await client.send("DELETE", `/api/todos/${second.id}`);
    await client.send("PATCH", `/api/todos/${first.id}`, { json: { done: true } });
    const { response, todos } = await client.list();
    response.expect(
      todos.every((todo, index) => isAfter(todo, todos[index - 1])),
      "ascending ids",
    );
  },

  async "list.emptied"(client) {
    await client.createAndDelete();
    const { response, todos } = await client.list();
    response.expect(todos.length === 0, "an empty array after the last to-do was deleted");
  },

  async "todo.id.step"(client) {
    let previous = (await client.create()).id;
    for (let n = 0; n < 5; n += 1) {
      const { response, id } = await client.create();
      response.expect(id === previous + 1n, `the id ${previous + 1n} after ${previous}`);
      previous = id;
    }
  },

  async "create.invalid.counter"(client) {
    const before = await client.create();
    for (const title of ["", "   ", "x".repeat(121), " ".repeat(121)]) {
      await client.send("POST", "/api/todos", { json: { title } });
    }
    const after = await client.create();
    after.response.expect(
      after.id === before.id + 1n,
      `the id ${before.id + 1n} after ${before.id} and four rejected to-dos`,
    );
  },

  async "counter.only-stored"(client) {
    const before = await client.create();
    const path = `/api/todos/${before.id}`;
    await client.send("PATCH", path, { json: { done: true } });
    await client.send("PATCH", path, { json: {} });
    await client.send("GET", path);
    await client.send("GET", "/api/todos");
    for (const body of ["", "{", "[]", "{}", '{"title":1}']) {
      await client.send("POST", "/api/todos", { body });
    }
    await client.send("DELETE", path);
    for (const method of ["GET", "DELETE"]) await client.send(method, path);
    await client.send("PATCH", path, { json: { done: true } });
    const after = await client.create();
    after.response.expect(
      after.id === before.id + 1n,
      `the id ${before.id + 1n}, because nothing was stored since ${before.id}`,
    );
  },
};

function isAfter(todo: Json, before: Json | undefined): boolean {
  if (before === undefined) return true;
  const [id, previous] = [ownProperty(todo, "id"), ownProperty(before, "id")];
  return typeof id === "bigint" && typeof previous === "bigint" && id > previous;
}
