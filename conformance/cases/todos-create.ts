/** POST /api/todos: what is stored, what is answered, which id it gets (sections 2 to 4). */
import type { Cases } from "../case.ts";
import { type Answer, type Json, member, type Service } from "../service.ts";

export const cases: Cases = {
  async "create.201"(service) {
    (await service.create()).answer.expectStatus(201);
  },

  async "create.answer"(service) {
    const { answer } = await service.create();
    const { json } = answer;
    const isTodo =
      typeof member(json, "id") === "bigint" &&
      typeof member(json, "title") === "string" &&
      typeof member(json, "done") === "boolean";
    answer.expect(isTodo, "a Todo");
  },

  async "create.done"(service) {
    const { answer } = await service.create();
    answer.expect(member(answer.json, "done") === false, "done=false");
  },

  async "create.stored"(service) {
    const { id, title } = await service.create();
    const answer = await service.send("GET", `/api/todos/${id}`);
    answer.expect(answer.ok && member(answer.json, "id") === id, `the item just created, “${title}”`);
  },

  // Titles short enough to be valid however their length is counted, and with no blank at either end.
  async "create.title"(service) {
    const titles = [
      service.title(),
      "two  blanks, a\ttab, a\nnewline and a\u0000zero inside",
      "quotes \" ' ` and back\\slashes \\u0041",
      "<b>markup</b> & &amp; %20 + {x}",
      "e\u0301 is not \u00e9",
      "Zażółć 日本語 العربية 👩‍👩‍👧 \u2028 ~",
      "null",
      "__proto__",
    ];
    for (const title of titles) {
      const { answer, id } = await service.create(title);
      expectTitle(answer, title);
      expectTitle(await service.send("GET", `/api/todos/${id}`), title);
    }
  },

  async "todo.keys"(service) {
    for (const [answer, todo] of await representations(service)) {
      answer.expect(keys(todo) === "done,id,title", "exactly the keys id, title and done");
    }
  },

  async "todo.id.type"(service) {
    for (const [answer, todo] of await representations(service)) {
      const id = member(todo, "id");
      answer.expect(typeof id === "bigint" && id >= 0n && id < 2n ** 64n, "an unsigned 64-bit integer as id");
    }
  },

  async "todo.title.type"(service) {
    for (const [answer, todo] of await representations(service)) {
      answer.expect(typeof member(todo, "title") === "string", "a string as title");
    }
  },

  async "todo.done.type"(service) {
    for (const [answer, todo] of await representations(service)) {
      answer.expect(typeof member(todo, "done") === "boolean", "a boolean as done");
    }
  },

  async "todo.id.increasing"(service) {
    let previous = (await service.create()).id;
    for (let n = 0; n < 5; n += 1) {
      const { answer, id } = await service.create();
      answer.expect(id > previous, `an id greater than ${previous}`);
      previous = id;
    }
  },

  async "todo.id.unique"(service) {
    const created = await Promise.all(Array.from({ length: 20 }, () => service.create()));
    const seen = new Set<bigint>();
    for (const { answer, id } of created) {
      answer.expect(!seen.has(id), "an id of its own among 20 simultaneous POSTs");
      seen.add(id);
    }
  },

  async "todo.id.not-reused"(service) {
    const older = await service.create();
    const newest = await service.create();
    await service.send("DELETE", `/api/todos/${newest.id}`);
    await service.send("DELETE", `/api/todos/${older.id}`);
    for (let n = 0; n < 3; n += 1) {
      const { answer, id } = await service.create();
      answer.expect(id > newest.id, `an id after ${newest.id}, which was deleted`);
    }
  },

  // An id or done beside the title may be refused or ignored, not taken.
  async "todo.id.assigned"(service) {
    const title = service.title();
    const wish = 2n ** 62n;
    const body = `{"id":${wish},"title":${JSON.stringify(title)}}`;
    const answer = await service.send("POST", "/api/todos", { body });
    answer.expect(!answer.ok || member(answer.json, "id") !== wish, "an id chosen by the service");
  },

  async "todo.done.assigned"(service) {
    const answer = await service.send("POST", "/api/todos", { json: { title: service.title(), done: true } });
    answer.expect(!answer.ok || member(answer.json, "done") === false, "done=false, or a refusal");
  },
};

function expectTitle(answer: Answer, title: string): void {
  answer.expect(member(answer.json, "title") === title, `the title ${JSON.stringify(title)}`);
}

/** A Todo as each operation that shows one answers it, and every one in the list. */
async function representations(service: Service): Promise<[Answer, Json][]> {
  const created = await service.create();
  const item = `/api/todos/${created.id}`;
  const fetched = await service.send("GET", item);
  const patched = await service.send("PATCH", item, { json: { done: true } });
  const { answer, items } = await service.list();
  const single = [created.answer, fetched, patched].map((one): [Answer, Json] => [one, one.json ?? null]);
  return [...single, ...items.map((todo): [Answer, Json] => [answer, todo])];
}

function keys(todo: Json): string {
  const isObject = typeof todo === "object" && todo !== null && !Array.isArray(todo);
  return isObject ? Object.keys(todo).sort().join() : "";
}
