/** POST /api/todos: what the server stores and returns, and which id it assigns (sections 2 to 4). */
import type { Cases } from "../case.ts";
import {
  type CapturedResponse,
  type Created,
  type Json,
  ownProperty,
  type TargetClient,
} from "../target-client.ts";

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
      "007",
      "__proto__",
    ];
    for (const title of titles) {
      const { response, id } = await client.create(title);
      expectTitle(response, title);
      expectTitle(await client.send("GET", `/api/todos/${id}`), title);
    }
    const body = '{"title":"caf\\u00e9 \\ud83d\\ude00"}';
    expectTitle(await client.send("POST", "/api/todos", { body }), "café 😀");
  },

  // The server may trim a title, but then it does so in each response.
  async "title.same"(client) {
    for (const title of [` ${client.uniqueTitle()} `, "Zażółć 日本語 👩‍👩‍👧"]) {
      const { id, response } = await client.create(title);
      const created = ownProperty(response.json, "title");
      const path = `/api/todos/${id}`;
      const responses = [
        await client.send("GET", path),
        await client.send("PATCH", path, { json: { done: true } }),
        await client.send("GET", path),
      ];
      for (const each of responses)
        each.expect(ownProperty(each.json, "title") === created, "the title in the response to POST");
      const { todos, response: list } = await client.list();
      const listed = todos.find((todo) => ownProperty(todo, "id") === id);
      list.expect(ownProperty(listed, "title") === created, "the title in the response to POST");
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
    const existing = await client.create();
    for (const requestedId of [existing.id, 2n ** 62n]) {
      const body = `{"id":${requestedId},"title":${JSON.stringify(client.uniqueTitle())}}`;
      const response = await client.send("POST", "/api/todos", { body });
      const isAssigned = ownProperty(response.json, "id") !== requestedId;
      response.expect(!response.ok || isAssigned, "an id assigned by the server");
      const fetched = await client.send("GET", `/api/todos/${requestedId}`);
      const isExisting = ownProperty(fetched.json, "title") === existing.title;
      fetched.expect(!fetched.ok || isExisting, "no to-do with an id from a request");
    }
  },

  async "todo.done.assigned"(client) {
    const response = await client.send("POST", "/api/todos", {
      json: { title: client.uniqueTitle(), done: true },
    });
    response.expect(
      !response.ok || ownProperty(response.json, "done") === false,
      "done=false or a rejection",
    );
    const id = ownProperty(response.json, "id");
    if (!response.ok || typeof id !== "bigint") return;
    const fetched = await client.send("GET", `/api/todos/${id}`);
    fetched.expect(ownProperty(fetched.json, "done") === false, "done=false");
  },

  async "todos.concurrent"(client) {
    const created = await Promise.all(Array.from({ length: 12 }, () => client.create()));
    for (const { response, title } of created) expectTitle(response, title);
    const change = async ({ id }: Created, index: number) => {
      const path = `/api/todos/${id}`;
      if (index % 3 === 0) return client.send("DELETE", path);
      if (index % 3 === 1) return client.create().then(({ response }) => response);
      const response = await client.send("PATCH", path, { json: { done: true } });
      response.expect(ownProperty(response.json, "id") === id, `the to-do ${id}`);
      return response;
    };
    const changed = await Promise.all(created.map(change));
    const { todos, response: list } = await client.list();
    const isListed = (id: Json | undefined, done: boolean) =>
      todos.some((todo) => ownProperty(todo, "id") === id && ownProperty(todo, "done") === done);
    for (const [index, { id }] of created.entries()) {
      const isDeleted = index % 3 === 0;
      const expected = isDeleted ? "no" : "the";
      const matches = isDeleted ? !isListed(id, false) : isListed(id, index % 3 === 2);
      list.expect(matches, `${expected} to-do ${id} after concurrent changes`);
    }
    for (const { json } of changed.filter((_, index) => index % 3 === 1))
      list.expect(isListed(ownProperty(json, "id"), false), "each to-do of a concurrent POST");
    const get = async ({ id }: Created) => {
      const response = await client.send("GET", `/api/todos/${id}`);
      response.expect(!response.ok || ownProperty(response.json, "id") === id, `the to-do ${id}`);
    };
    await Promise.all(created.map(get));
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
