/** What only an empty server of our own can show: the empty list and the exact counter (sections 2 to 4). */
import type { Cases } from "../case.ts";

export const cases: Cases = {
  // First of all, while there is nothing yet.
  async "list.empty"(service) {
    const { answer, items } = await service.list();
    answer.expect(items.length === 0, "an empty array");
  },

  async "todo.id.first"(service) {
    const { answer, id } = await service.create();
    answer.expect(id === 1n, "the id 1 for the first item of all");
  },

  async "todo.id.step"(service) {
    let previous = (await service.create()).id;
    for (let n = 0; n < 5; n += 1) {
      const { answer, id } = await service.create();
      answer.expect(id === previous + 1n, `the id ${previous + 1n}, after ${previous}`);
      previous = id;
    }
  },

  async "create.invalid.counter"(service) {
    const before = await service.create();
    for (const title of ["", "   ", "x".repeat(121), " ".repeat(121)]) {
      await service.send("POST", "/api/todos", { json: { title } });
    }
    const after = await service.create();
    after.answer.expect(
      after.id === before.id + 1n,
      `the id ${before.id + 1n}, after ${before.id} and four rejected items`,
    );
  },

  async "counter.only-stored"(service) {
    const before = await service.create();
    const item = `/api/todos/${before.id}`;
    await service.send("PATCH", item, { json: { done: true } });
    await service.send("PATCH", item, { json: {} });
    await service.send("GET", item);
    await service.send("GET", "/api/todos");
    for (const body of ["", "{", "[]", "{}", '{"title":1}']) {
      await service.send("POST", "/api/todos", { body });
    }
    await service.send("DELETE", item);
    for (const method of ["GET", "DELETE"]) await service.send(method, item);
    await service.send("PATCH", item, { json: { done: true } });
    const after = await service.create();
    after.answer.expect(
      after.id === before.id + 1n,
      `the id ${before.id + 1n}, as nothing was stored since ${before.id}`,
    );
  },
};
