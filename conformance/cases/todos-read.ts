/** GET /api/todos and GET /api/todos/:id (section 4). */
import type { Cases } from "../case.ts";
import { type Json, member } from "../service.ts";

export const cases: Cases = {
  async "list.200"(service) {
    (await service.send("GET", "/api/todos")).expectStatus(200);
  },

  async "list.array"(service) {
    await service.create();
    const answer = await service.send("GET", "/api/todos");
    answer.expect(Array.isArray(answer.json), "a JSON array");
  },

  async "list.complete"(service) {
    const kept = await service.create();
    const changed = await service.create();
    const deleted = await service.createAndDelete();
    await service.send("PATCH", `/api/todos/${changed.id}`, { json: { done: true } });
    const { answer, items } = await service.list();
    const shown = (id: bigint) => items.filter((item) => member(item, "id") === id);
    const shows = (id: bigint, title: string, done: boolean) => {
      const [only, ...more] = shown(id);
      const matches = member(only, "title") === title && member(only, "done") === done;
      answer.expect(more.length === 0 && matches, `the item ${id} once, with its title and done=${done}`);
    };
    shows(kept.id, kept.title, false);
    shows(changed.id, changed.title, true);
    answer.expect(shown(deleted).length === 0, `no item ${deleted}, which was deleted`);
  },

  // A dozen, so that the ids of an empty server pass from one digit to two; one is changed, which must not move it.
  async "list.order"(service) {
    const first = await service.create();
    for (let n = 0; n < 11; n += 1) await service.create();
    await service.send("PATCH", `/api/todos/${first.id}`, { json: { done: true } });
    const { answer, items } = await service.list();
    answer.expect(
      items.every((item, index) => follows(item, items[index - 1])),
      "ids that ascend",
    );
  },

  async "get.200"(service) {
    const { id } = await service.create();
    (await service.send("GET", `/api/todos/${id}`)).expectStatus(200);
  },

  async "get.answer"(service) {
    const one = await service.create();
    const other = await service.create();
    for (const { id, title } of [one, other]) {
      const answer = await service.send("GET", `/api/todos/${id}`);
      const { json } = answer;
      const isThat =
        member(json, "id") === id && member(json, "title") === title && member(json, "done") === false;
      answer.expect(isThat, `the item ${id}, “${title}”, done=false`);
    }
  },
};

function follows(item: Json, before: Json | undefined): boolean {
  if (before === undefined) return true;
  const [id, previous] = [member(item, "id"), member(before, "id")];
  return typeof id === "bigint" && typeof previous === "bigint" && id > previous;
}
