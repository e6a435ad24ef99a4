/**
 * Missing and malformed bodies, and bodies with wrong types. The specification does not show their status (section 7), so
 * any 4xx is accepted. They must store and change nothing (section 4, rule 1).
 */
import type { Cases } from "../case.ts";
import { ownProperty } from "../target-client.ts";

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

/** Returns malformed bodies, and bodies of another shape, that contain a valid field. */
function malformedAround(key: string, value: string): string[] {
  return [
    value,
    `{"${key}":${value}`,
    `{"${key}":${value}}}`,
    `{"${key}":${value},}`,
    `{${key}:${value}}`,
    `[{"${key}":${value}}]`,
    `{"${key}":[${value}]}`,
    `{"todo":{"${key}":${value}}}`,
  ];
}

export const cases: Cases = {
  async "newtodo.title.required"(client) {
    for (const json of [{}, { done: false }, { Title: "x" }, { name: "x" }]) {
      (await client.send("POST", "/api/todos", { json })).expect4xx();
    }
  },

  async "newtodo.title.string"(client) {
    for (const title of [null, true, false, 0, 1, 1.5, [], ["x"], {}, { title: "x" }]) {
      (await client.send("POST", "/api/todos", { json: { title } })).expect4xx();
    }
  },

  async "body.create.4xx"(client) {
    (await client.send("POST", "/api/todos", { note: "without a body" })).expect4xx();
    for (const body of malformed) (await client.send("POST", "/api/todos", { body })).expect4xx();
  },

  async "body.update.4xx"(client) {
    const path = `/api/todos/${(await client.create()).id}`;
    (await client.send("PATCH", path, { note: "without a body" })).expect4xx();
    for (const body of [...malformed, ...malformedAround("done", "true")])
      (await client.send("PATCH", path, { body })).expect4xx();
    const response = await client.send("GET", path);
    response.expect(ownProperty(response.json, "done") === false, "done to remain false");
  },

  // Each body contains a unique title, so that the list shows whether the server stored it.
  async "create.validates-first"(client) {
    const title = client.uniqueTitle();
    for (const body of malformedAround("title", JSON.stringify(title)))
      await client.send("POST", "/api/todos", { body });
    const { response, todos } = await client.list();
    const stored = todos.some((todo) => String(ownProperty(todo, "title")).includes(title));
    response.expect(!stored, `no to-do “${title}” from a malformed body`);
  },
};
