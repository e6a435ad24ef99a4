/** PATCH /api/todos/:id: done, and only done, takes the value sent (sections 2 to 4). */
import type { Cases } from "../case.ts";
import { type Answer, type Json, member, type Service } from "../service.ts";

export const cases: Cases = {
  async "update.200"(service) {
    const { id } = await service.create();
    for (const done of [true, false]) (await patch(service, id, { done })).expectStatus(200);
  },

  async "update.answer"(service) {
    const { id, title } = await service.create();
    const answer = await patch(service, id, { done: true });
    const { json } = answer;
    const isThat =
      member(json, "id") === id && member(json, "title") === title && member(json, "done") === true;
    answer.expect(isThat, `the item ${id} after the change`);
  },

  async "update.to-true"(service) {
    const { id } = await service.create();
    expectDone(await patch(service, id, { done: true }), true);
    expectDone(await patch(service, id, { done: true }), true);
  },

  async "update.to-false"(service) {
    const { id } = await service.create();
    expectDone(await patch(service, id, { done: false }), false);
    await patch(service, id, { done: true });
    expectDone(await patch(service, id, { done: false }), false);
  },

  async "update.stored"(service) {
    const { id } = await service.create();
    for (const done of [true, false]) {
      const sent = await patch(service, id, { done });
      const { json } = await service.send("GET", `/api/todos/${id}`);
      sent.expect(member(json, "done") === member(sent.json, "done"), "a change that a GET then shows");
    }
  },

  async "update.only-one"(service) {
    const [before, changed, after] = [await service.create(), await service.create(), await service.create()];
    await patch(service, changed.id, { done: true });
    for (const { id } of [before, after]) {
      const answer = await service.send("GET", `/api/todos/${id}`);
      answer.expect(member(answer.json, "done") === false, `done=false, as only ${changed.id} was changed`);
    }
  },

  async "patch.done.required"(service) {
    await expectRefused(service, [{}, { title: "another title" }, { Done: true }]);
  },

  async "patch.done.boolean"(service) {
    await expectRefused(
      service,
      ["true", "false", "", 1, 0, null, [], [true], {}].map((done) => ({ done })),
    );
  },

  // A title or an id beside done may be refused or ignored, not taken.
  async "patch.only-done"(service) {
    const { id, title } = await service.create();
    await service.send("PATCH", `/api/todos/${id}`, { json: { done: true, title: "another title", id: 0 } });
    const answer = await service.send("GET", `/api/todos/${id}`);
    const { json } = answer;
    answer.expect(
      member(json, "id") === id && member(json, "title") === title,
      `the id ${id} and the title “${title}”`,
    );
  },
};

function patch(service: Service, id: bigint, json: Json): Promise<Answer> {
  return service.send("PATCH", `/api/todos/${id}`, { json });
}

function expectDone(answer: Answer, done: boolean): void {
  answer.expect(member(answer.json, "done") === done, `done=${done}`);
}

/** Each body is refused and changes nothing, be the item done or not. */
async function expectRefused(service: Service, bodies: Json[]): Promise<void> {
  const { id } = await service.create();
  for (const done of [false, true]) {
    await patch(service, id, { done });
    for (const body of bodies) {
      const refused = await patch(service, id, body);
      refused.expect4xx();
      const { json } = await service.send("GET", `/api/todos/${id}`);
      refused.expect(member(json, "done") === done, `done to stay ${done}`);
    }
  }
}
