/** DELETE /api/todos/:id, and what does not exist stays so (sections 3 and 4). */
import type { Cases } from "../case.ts";
import { member } from "../service.ts";

export const cases: Cases = {
  async "delete.204"(service) {
    const { id } = await service.create();
    (await service.send("DELETE", `/api/todos/${id}`)).expectStatus(204);
  },

  // Raw, as an HTTP client does not show what follows a 204.
  async "delete.empty"(service) {
    const { id } = await service.create();
    const answer = await service.raw("DELETE", `/api/todos/${id}`);
    answer.expect(answer.ok && answer.text === "", "success and no body");
  },

  async "delete.removes"(service) {
    const { id } = await service.create();
    await service.send("DELETE", `/api/todos/${id}`);
    const fetched = await service.send("GET", `/api/todos/${id}`);
    fetched.expect(!fetched.ok, "no item, as it was deleted");
    const { answer, items } = await service.list();
    answer.expect(!items.some((item) => member(item, "id") === id), `no item ${id}, as it was deleted`);
  },

  async "delete.either-state"(service) {
    for (const done of [false, true]) {
      const { id } = await service.create();
      await service.send("PATCH", `/api/todos/${id}`, { json: { done } });
      const answer = await service.send("DELETE", `/api/todos/${id}`);
      answer.expect(answer.ok, `success, with done=${done}`);
    }
  },

  async "delete.only-one"(service) {
    const [before, deleted, after] = [await service.create(), await service.create(), await service.create()];
    await service.send("DELETE", `/api/todos/${deleted.id}`);
    for (const { id } of [before, after]) {
      const answer = await service.send("GET", `/api/todos/${id}`);
      answer.expect(answer.ok, `the item still, as only ${deleted.id} was deleted`);
    }
  },

  async "delete.once"(service) {
    const { id } = await service.create();
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => service.send("DELETE", `/api/todos/${id}`)),
    );
    const [first, ...more] = answers.filter(({ ok }) => ok);
    answers[0]?.expect(first !== undefined, "one of 8 simultaneous DELETEs to succeed");
    more[0]?.expect(false, "only one of 8 simultaneous DELETEs to succeed");
  },

  // The race at the end: an update that read the item before it was deleted must not write it back.
  async "absent.unchanged"(service) {
    const gone = await service.createAndDelete();
    const never = gone + 1_000_000_000_000n;
    for (const id of [gone, never]) {
      const item = `/api/todos/${id}`;
      await service.send("PATCH", item, { json: { done: true } });
      await service.send("DELETE", item);
      const answer = await service.send("GET", item);
      answer.expect(!answer.ok, "no item, as none was created");
    }
    for (let round = 0; round < 5; round += 1) {
      const item = `/api/todos/${(await service.create()).id}`;
      const update = () => service.send("PATCH", item, { json: { done: true } });
      await Promise.all([update(), service.send("DELETE", item), update(), update()]);
      const answer = await service.send("GET", item);
      answer.expect(!answer.ok, "no item, as it was deleted while being updated");
    }
  },
};
