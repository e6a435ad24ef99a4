/** PATCH /api/todos/:id sets done and nothing else (sections 2 to 4). */
import type { Cases } from "../case.ts";
import { type CapturedResponse, type Json, ownProperty, type TargetClient } from "../target-client.ts";

export const cases: Cases = {
  async "update.200"(client) {
    const { id } = await client.create();
    for (const done of [true, false]) (await patch(client, id, { done })).expectStatus(200);
  },

  async "update.answer"(client) {
    const { id, title } = await client.create();
    const response = await patch(client, id, { done: true });
    const { json } = response;
    const matches =
      ownProperty(json, "id") === id &&
      ownProperty(json, "title") === title &&
      ownProperty(json, "done") === true;
    response.expect(matches, `the to-do ${id} after the change`);
  },

  async "update.to-true"(client) {
    const { id } = await client.create();
    expectDone(await patch(client, id, { done: true }), true);
    expectDone(await patch(client, id, { done: true }), true);
  },

  async "update.to-false"(client) {
    const { id } = await client.create();
    expectDone(await patch(client, id, { done: false }), false);
    await patch(client, id, { done: true });
    expectDone(await patch(client, id, { done: false }), false);
  },

  async "update.stored"(client) {
    const { id } = await client.create();
    for (const done of [true, false]) {
      const patched = await patch(client, id, { done });
      const fetched = await client.send("GET", `/api/todos/${id}`);
      fetched.expect(
        ownProperty(fetched.json, "done") === ownProperty(patched.json, "done"),
        "the value of done in the response to PATCH",
      );
    }
  },

  async "update.only-one"(client) {
    const [before, changed, after] = await client.createWithSameTitle();
    await patch(client, changed.id, { done: true });
    for (const { id } of [before, after]) {
      const response = await client.send("GET", `/api/todos/${id}`);
      response.expect(
        ownProperty(response.json, "done") === false,
        `done=false, because only ${changed.id} was changed`,
      );
    }
  },

  async "patch.done.required"(client) {
    await expectRejected(client, [{}, { title: "another title" }, { Done: true }]);
  },

  async "patch.done.boolean"(client) {
    await expectRejected(
      client,
      ["true", "false", "yes", "", 1, 0, null, [], [true], {}].map((done) => ({ done })),
    );
  },

  // The server may reject or ignore a title or an id in the body. It must not use them.
  async "patch.only-done"(client) {
    const [{ id, title }, other] = [await client.create(), await client.create()];
    const path = `/api/todos/${id}`;
    const bodies = ['{"done":true,"title":"another title","id":0}', `{"done":true,"id":${other.id}}`];
    for (const body of [...bodies, '{"title":"another title"}']) {
      const responses = [await client.send("PATCH", path, { body }), await client.send("GET", path)];
      for (const response of responses.filter(({ ok }) => ok)) {
        const { json } = response;
        const matches = ownProperty(json, "id") === id && ownProperty(json, "title") === title;
        response.expect(matches, `the id ${id} and the title “${title}”`);
      }
    }
    const response = await client.send("GET", `/api/todos/${other.id}`);
    response.expect(
      ownProperty(response.json, "done") === false,
      `done=false, because only ${id} was changed`,
    );
  },
};

function patch(client: TargetClient, id: bigint, json: Json): Promise<CapturedResponse> {
  return client.send("PATCH", `/api/todos/${id}`, { json });
}

function expectDone(response: CapturedResponse, done: boolean): void {
  response.expect(ownProperty(response.json, "done") === done, `done=${done}`);
}

/** Expects the server to reject each body and to keep done unchanged. */
async function expectRejected(client: TargetClient, bodies: Json[]): Promise<void> {
  const { id } = await client.create();
  for (const done of [false, true]) {
    await patch(client, id, { done });
    for (const body of bodies) {
      const rejected = await patch(client, id, body);
      rejected.expect4xx();
      const { json } = await client.send("GET", `/api/todos/${id}`);
      rejected.expect(ownProperty(json, "done") === done, `done to remain ${done}`);
    }
  }
}
