/** POST /api/todos: what the server stores and returns, and which id it assigns (sections 2 to 4). */
import type { Cases } from "../case.ts";
import { type CapturedResponse, type Json, ownProperty, type TargetClient } from "../target-client.ts";

export const cases: Cases = {
  async "create.201"(client) {
    (await client.create()).response.expectStatus(201);
  },

  async "create.answer"(client) {
    const { response } = await client.create();
    const { json } = response;
    const isTodo = ["id", "title", "done"].every((key) => ownProperty(json, key) !== undefined);
    response.expect(isTodo, "a Todo");
  },

  async "create.done"(client) {
    const { response } = await client.create();
    response.expect(ownProperty(response.json, "done") === false, "done=false");
  },

  // The list is enough, because other rules check GET of a to-do.
  async "create.stored"(client) {
    const { id, title } = await client.create();
    if ((await client.send("GET", `/api/todos/${id}`)).ok) return;
    const { response, todos } = await client.list();
    response.expect(
      todos.some((todo) => String(ownProperty(todo, "id")) === String(id)),
      `the new to-do “${title}”`,
    );
  },

  // These titles are valid however a server counts their length, and have no whitespace at either end.
  async "create.title"(client) {
    const titles = [
      client.uniqueTitle(),
      "two  blanks, a\ttab, a\nnewline and a\u0000zero inside",
      "quotes \" ' ` and back\\slashes \\u0041",
      "<b>markup</b> & &amp; %20 + {x}",
      "e\u0301 is not \u00e9",
      "Zażółć 日本語 العربية 👩‍👩‍👧 \u2028 ~",
      "null",
      "__proto__",
    ];
    for (const title of titles) {
      const { response, id } = await client.create(title);
      expectTitle(response, title);
      expectTitle(await client.send("GET", `/api/todos/${id}`), title);
    }
  },

  // In the second title, each character has two bytes in UTF-8. It finds columns that count bytes.
  async "create.title.whole"(client) {
    for (const last of ["y", "é"]) {
      const title = `${client.uniqueTitle().padEnd(119, last)}z`;
      const { id, response } = await client.create(title);
      const path = `/api/todos/${id}`;
      const responses = [response, await client.send("GET", path)];
      responses.push(await client.send("PATCH", path, { json: { done: true } }));
      for (const each of responses) {
        const stored = ownProperty(each.json, "title");
        const length = typeof stored === "string" ? [...stored].length : 0;
        each.expect(stored === title, `the whole title of 120 characters, not ${length} of them`);
      }
    }
  },

  async "create.same-title"(client) {
    const first = await client.create();
    const second = await client.send("POST", "/api/todos", { json: { title: first.title } });
    second.expect(second.ok, "a second to-do with the same title");
    const id = ownProperty(second.json, "id");
    second.expect(String(id) !== String(first.id), `an id other than ${first.id}`);
  },

  async "todo.keys"(client) {
    for (const [response, todo] of await representations(client)) {
      response.expect(sortedKeys(todo) === "done,id,title", "exactly the keys id, title and done");
    }
  },

  async "todo.id.type"(client) {
    for (const [response, todo] of await representations(client)) {
      const id = ownProperty(todo, "id");
      response.expect(
        typeof id === "bigint" && id >= 0n && id < 2n ** 64n,
        "an unsigned 64-bit integer as id",
      );
    }
  },

  async "todo.title.type"(client) {
    for (const [response, todo] of await representations(client)) {
      response.expect(typeof ownProperty(todo, "title") === "string", "a string as title");
    }
  },

  async "todo.done.type"(client) {
    for (const [response, todo] of await representations(client)) {
      response.expect(typeof ownProperty(todo, "done") === "boolean", "a boolean as done");
    }
  },

  async "todo.id.increasing"(client) {
    let previous = (await client.create()).id;
    for (let n = 0; n < 5; n += 1) {
      const { response, id } = await client.create();
      response.expect(id > previous, `an id greater than ${previous}`);
      previous = id;
    }
  },

  async "todo.id.unique"(client) {
    const created = await Promise.all(Array.from({ length: 20 }, () => client.create()));
    const seen = new Set<bigint>();
    for (const { response, id } of created) {
      response.expect(!seen.has(id), "different ids from 20 concurrent POSTs");
      seen.add(id);
    }
  },

  async "todo.id.not-reused"(client) {
    const older = await client.create();
    const newest = await client.create();
    await client.send("DELETE", `/api/todos/${newest.id}`);
    await client.send("DELETE", `/api/todos/${older.id}`);
    for (let n = 0; n < 3; n += 1) {
      const { response, id } = await client.create();
      response.expect(id > newest.id, `an id greater than the deleted ${newest.id}`);
    }
  },

  // The server may reject or ignore an id or done in the body. It must not use them.
  async "todo.id.assigned"(client) {
    const title = client.uniqueTitle();
    const requestedId = 2n ** 62n;
    const body = `{"id":${requestedId},"title":${JSON.stringify(title)}}`;
    const response = await client.send("POST", "/api/todos", { body });
    response.expect(
      !response.ok || ownProperty(response.json, "id") !== requestedId,
      "an id assigned by the server",
    );
  },

  async "todo.done.assigned"(client) {
    const response = await client.send("POST", "/api/todos", {
      json: { title: client.uniqueTitle(), done: true },
    });
    response.expect(
      !response.ok || ownProperty(response.json, "done") === false,
      "done=false or a rejection",
    );
  },
};

function expectTitle(response: CapturedResponse, title: string): void {
  response.expect(ownProperty(response.json, "title") === title, `the title ${JSON.stringify(title)}`);
}

/** Returns the Todos from every operation that returns one, each with its response. */
async function representations(client: TargetClient): Promise<[CapturedResponse, Json][]> {
  const created = await client.create();
  const path = `/api/todos/${created.id}`;
  const fetched = await client.send("GET", path);
  const patched = await client.send("PATCH", path, { json: { done: true } });
  const { response, todos } = await client.list();
  const single = [created.response, fetched, patched].map((each): [CapturedResponse, Json] => [
    each,
    each.json ?? null,
  ]);
  return [...single, ...todos.map((todo): [CapturedResponse, Json] => [response, todo])];
}

function sortedKeys(todo: Json): string {
  const isObject = typeof todo === "object" && todo !== null && !Array.isArray(todo);
  return isObject ? Object.keys(todo).sort().join() : "";
}
