/** The path parameter :id: an absent to-do gets 404, a malformed id gets 400 (sections 1, 4 and 7). */
import type { Cases } from "../case.ts";
import type { CapturedResponse, TargetClient } from "../target-client.ts";

const largest = 2n ** 64n - 1n;

/** Strings that are not unsigned decimal integers, also with digits of other scripts. The specification leaves leading zeros, "+1" and "-0" open. */
const malformed =
  "abc -1 -9223372036854775808 1.5 1.0 1e3 0x1 1abc abc1 1_0 1,0 %20 1%20 NaN Infinity true null %C3%A9 %D9%A1 %C2%B2".split(
    " ",
  );

export const cases: Cases = {
  async "id.distinct-status"(client) {
    const absent = await client.send("GET", `/api/todos/${await client.createAndDelete()}`);
    const invalid = await client.send("GET", "/api/todos/abc");
    invalid.expect(
      invalid.status !== absent.status,
      `a status other than ${absent.status}, the status of an unknown id`,
    );
  },

  // No server has these to-dos: ids start at 1, and no server has assigned ids as large as the others.
  async "id.range"(client) {
    const { id } = await client.create();
    for (const absent of [0n, id + 2n ** 32n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, largest]) {
      for (const method of methods) (await sendWithId(client, method, String(absent))).expectStatus(404);
    }
  },

  // One of these is an existing id modulo 2^64.
  async "id.out-of-range"(client) {
    const { id } = await client.create();
    const numbers = [largest + 1n, largest + 1n + id, 2n ** 65n, 10n ** 99n];
    for (const number of numbers) {
      for (const method of methods) (await sendWithId(client, method, String(number))).expectStatus(400);
    }
  },

  async "get.absent.404"(client) {
    await expectAbsent(client, "GET");
  },

  async "update.absent.404"(client) {
    await expectAbsent(client, "PATCH");
  },

  async "delete.absent.404"(client) {
    await expectAbsent(client, "DELETE");
  },

  async "get.malformed.400"(client) {
    await expectMalformed(client, "GET");
  },

  async "update.malformed.400"(client) {
    await expectMalformed(client, "PATCH");
  },

  // The JSON is well-formed, because a server may parse each body before it looks at the path.
  async "update.malformed.any-body"(client) {
    for (const json of [{}, { done: "true" }, { done: null }]) {
      (await client.send("PATCH", "/api/todos/abc", { json })).expectStatus(400);
    }
  },

  async "delete.malformed.400"(client) {
    await expectMalformed(client, "DELETE");
  },
};

const methods = ["GET", "PATCH", "DELETE"] as const;

type Method = (typeof methods)[number];

function sendWithId(client: TargetClient, method: Method, id: string): Promise<CapturedResponse> {
  return client.send(method, `/api/todos/${id}`, method === "PATCH" ? { json: { done: true } } : {});
}

/** Expects 404 for a deleted id and for an id that was never assigned. */
async function expectAbsent(client: TargetClient, method: Method): Promise<void> {
  const deleted = await client.createAndDelete();
  for (const id of [deleted, deleted + 1_000_000_000_000n]) {
    (await sendWithId(client, method, String(id))).expectStatus(404);
  }
}

/** Expects 400 for malformed ids. Some start with an existing id, to find parsers that ignore the rest. */
async function expectMalformed(client: TargetClient, method: Method): Promise<void> {
  const { id } = await client.create();
  for (const invalid of [
    ...malformed,
    `${id}abc`,
    `${id}.0`,
    `${id}e0`,
    `${id}%0A`,
    `0x${id.toString(16)}`,
  ]) {
    (await sendWithId(client, method, invalid)).expectStatus(400);
  }
}
