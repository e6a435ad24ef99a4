/**
 * Bodies that are missing, malformed, or of the wrong shape. Their status is not shown (section 7), so any 4xx will do,
 * but they store and change nothing (section 4, rule 1).
 */
import type { Cases } from "../case.ts";
import { member } from "../service.ts";

const malformed = [
  "",
  " ",
  "{",
  "}",
  "title",
  "null",
  "true",
  "42",
  '"text"',
  "[]",
  "[{}]",
  "{}{}",
  "{'title':'x'}",
];

export const cases: Cases = {
  async "newtodo.title.required"(service) {
    for (const json of [{}, { done: false }, { Title: "x" }, { name: "x" }]) {
      (await service.send("POST", "/api/todos", { json })).expect4xx();
    }
  },

  async "newtodo.title.string"(service) {
    for (const title of [null, true, false, 0, 1, 1.5, [], ["x"], {}, { title: "x" }]) {
      (await service.send("POST", "/api/todos", { json: { title } })).expect4xx();
    }
  },

  async "body.create.4xx"(service) {
    (await service.send("POST", "/api/todos", { as: "without a body" })).expect4xx();
    for (const body of malformed) (await service.send("POST", "/api/todos", { body })).expect4xx();
  },

  async "body.update.4xx"(service) {
    const item = `/api/todos/${(await service.create()).id}`;
    (await service.send("PATCH", item, { as: "without a body" })).expect4xx();
    for (const body of malformed) (await service.send("PATCH", item, { body })).expect4xx();
    const answer = await service.send("GET", item);
    answer.expect(member(answer.json, "done") === false, "done to stay false");
  },

  // Each body carries a title by which the item would be found.
  async "create.validates-first"(service) {
    const mark = service.title();
    const quoted = JSON.stringify(mark);
    const bodies = [
      quoted,
      `{"title":${quoted}`,
      `{"title":${quoted}}}`,
      `{"title":${quoted},}`,
      `{title:${quoted}}`,
      `[{"title":${quoted}}]`,
      `{"title":[${quoted}]}`,
      `{"todo":{"title":${quoted}}}`,
    ];
    for (const body of bodies) await service.send("POST", "/api/todos", { body });
    const { answer, items } = await service.list();
    const stored = items.some((item) => String(member(item, "title")).includes(mark));
    answer.expect(!stored, `no item from a malformed body (“${mark}”)`);
  },
};
