/** The path parameter :id: well-formed and absent is 404, malformed is 400 (sections 1, 4 and 7). */
import type { Cases } from "../case.ts";
import type { Answer, Service } from "../service.ts";

const largest = 2n ** 64n - 1n;

/** No server reads these as an unsigned decimal integer. Open and so not here: leading zeros, "+1", "-0". */
const malformed =
  "abc -1 -9223372036854775808 1.5 1.0 1e3 0x1 1abc abc1 1_0 1,0 %20 1%20 NaN Infinity true null %C3%A9".split(
    " ",
  );

export const cases: Cases = {
  async "id.distinct-status"(service) {
    const absent = await service.send("GET", `/api/todos/${await service.createAndDelete()}`);
    const bad = await service.send("GET", "/api/todos/abc");
    bad.expect(
      bad.status !== absent.status,
      `another status than ${absent.status}, which an unknown id gets`,
    );
  },

  // Absent everywhere: 0 is before the counter, the others are past what any server has counted.
  async "id.range"(service) {
    for (const id of [0n, 2n ** 53n + 1n, 2n ** 63n - 1n, 2n ** 63n, largest]) {
      for (const method of methods) (await onItem(service, method, String(id))).expectStatus(404);
    }
  },

  // One of them is an existing id after wrapping round.
  async "id.out-of-range"(service) {
    const { id } = await service.create();
    const numbers = [largest + 1n, largest + 1n + id, 2n ** 65n, 10n ** 99n];
    for (const number of numbers) {
      for (const method of methods) (await onItem(service, method, String(number))).expectStatus(400);
    }
  },

  async "get.absent.404"(service) {
    await expectAbsent(service, "GET");
  },

  async "update.absent.404"(service) {
    await expectAbsent(service, "PATCH");
  },

  async "delete.absent.404"(service) {
    await expectAbsent(service, "DELETE");
  },

  async "get.malformed.400"(service) {
    await expectMalformed(service, "GET");
  },

  async "update.malformed.400"(service) {
    await expectMalformed(service, "PATCH");
  },

  async "delete.malformed.400"(service) {
    await expectMalformed(service, "DELETE");
  },
};

const methods = ["GET", "PATCH", "DELETE"] as const;

type Method = (typeof methods)[number];

function onItem(service: Service, method: Method, id: string): Promise<Answer> {
  return service.send(method, `/api/todos/${id}`, method === "PATCH" ? { json: { done: true } } : {});
}

/** An id that was deleted, and one not yet given out. */
async function expectAbsent(service: Service, method: Method): Promise<void> {
  const gone = await service.createAndDelete();
  for (const id of [gone, gone + 1_000_000_000_000n]) {
    (await onItem(service, method, String(id))).expectStatus(404);
  }
}

/** Also ids that begin with an existing one, for a parser that reads as far as it can. */
async function expectMalformed(service: Service, method: Method): Promise<void> {
  const { id } = await service.create();
  for (const bad of [...malformed, `${id}abc`, `${id}.0`, `${id}e0`, `0x${id.toString(16)}`]) {
    (await onItem(service, method, bad)).expectStatus(400);
  }
}
