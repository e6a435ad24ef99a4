/** What holds for all to-do routes: where they are, that they are open, that they speak JSON (sections 1, 4, 5, 9). */
import type { Cases } from "../case.ts";
import { type Answer, member, type Service } from "../service.ts";

export const cases: Cases = {
  async "api.prefix"(service) {
    const { id } = await service.create();
    const under = await service.send("GET", `/api/todos/${id}`);
    under.expect(member(under.json, "id") === id, `the item ${id}`);
    await expectNotServed(service, `/todos/${id}`, id);
  },

  async "api.no-version"(service) {
    const { id } = await service.create();
    for (const prefix of ["/api/v1", "/v1/api", "/api/v0", "/api/v2"]) {
      await expectNotServed(service, `${prefix}/todos/${id}`, id);
    }
  },

  async "todos.open"(service) {
    for (const answer of await everyOperation(service, {})) {
      answer.expect(![401, 403, 407].includes(answer.status), "no demand for credentials");
    }
  },

  async "todos.no-authentication"(service) {
    const wrong = ["Bearer not-a-token", `Basic ${btoa("nobody:wrong")}`, "Nonsense"];
    for (const authorization of wrong) {
      for (const answer of await everyOperation(service, { authorization })) {
        answer.expect(answer.ok, "success, whatever the authorization header says");
      }
    }
  },

  async "json.success"(service) {
    const operations = await everyOperation(service, {});
    for (const answer of operations.filter(({ text }) => text !== "")) expectJson(answer);
  },

  async "json.errors"(service) {
    const absent = `/api/todos/${await service.createAndDelete()}`;
    const { id } = await service.create();
    const patch = { json: { done: true } };
    const errors = [
      await service.send("GET", absent),
      await service.send("PATCH", absent, patch),
      await service.send("DELETE", absent),
      await service.send("GET", "/api/todos/abc"),
      await service.send("PATCH", "/api/todos/abc", patch),
      await service.send("DELETE", "/api/todos/abc"),
      await service.send("POST", "/api/todos", { json: { title: "" } }),
      await service.send("POST", "/api/todos", { json: {} }),
      await service.send("POST", "/api/todos", { body: "{" }),
      await service.send("PATCH", `/api/todos/${id}`, { json: {} }),
      await service.send("PATCH", `/api/todos/${id}`, { body: "{" }),
    ];
    for (const answer of errors.filter(({ text }) => text !== "")) expectJson(answer);
  },
};

/** One successful request of each kind, sent with these headers. */
async function everyOperation(service: Service, headers: Record<string, string>): Promise<Answer[]> {
  const as = headers.authorization === undefined ? "without credentials" : "with credentials of no use";
  const create = await service.send("POST", "/api/todos", { json: { title: service.title() }, headers, as });
  // Where that was refused, the item comes from elsewhere, or the case ends here.
  const created = member(create.json, "id");
  const item = `/api/todos/${typeof created === "bigint" ? created : (await service.create()).id}`;
  return [
    create,
    await service.send("GET", "/api/todos", { headers, as }),
    await service.send("GET", item, { headers, as }),
    await service.send("PATCH", item, { json: { done: true }, headers, as }),
    await service.send("DELETE", item, { headers, as }),
  ];
}

function expectJson(answer: Answer): void {
  answer.expect(/^application\/([^\s;]+\+)?json\s*(;|$)/i.test(answer.contentType), "a JSON content type");
  answer.expect(answer.json !== undefined, "JSON");
}

async function expectNotServed(service: Service, path: string, id: bigint): Promise<void> {
  const answer = await service.send("GET", path);
  answer.expect(!(answer.ok && member(answer.json, "id") === id), "no to-do on this path");
}
