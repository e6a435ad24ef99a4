import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { integrity } from "./integrity.ts";
import { listTodos, postTodo, type ServedTodo, sendJson } from "./served-todos.ts";
import { kill, serveFile } from "./server.ts";
import { temporaryFolder } from "./temporary.ts";
import { until } from "./until.ts";

const folder = temporaryFolder();

const ROUNDS = Number(process.env.TODO_TEST_CRASH_ROUNDS ?? 8);
setDefaultTimeout(120_000 + ROUNDS * 3000);
const WRITERS = 8;
/** How many of the latest POSTs are sent again after each start. */
const RETRIES = 20;

interface Acknowledged {
  readonly titles: Map<number, string>;
  readonly done: Set<number>;
  /** The titles of POSTs that got no response. */
  readonly unanswered: Set<string>;
}

test(`SQLite loses no acknowledged write in ${ROUNDS} rounds of kill -9`, async () => {
  const path = join(folder, "todos.db");
  const acknowledged: Acknowledged = { titles: new Map(), done: new Set(), unanswered: new Set() };
  for (let round = 0; round < ROUNDS; round++) {
    await using server = serveFile(path);
    const url = await server.url;
    await verify(url, acknowledged);
    await retry(url, acknowledged);
    const writers = Array.from({ length: WRITERS }, (_, writer) =>
      write(url, `${round}.${writer}`, acknowledged),
    );
    const enough = acknowledged.titles.size + 2 * WRITERS + Math.random() * 100;
    await until(() => acknowledged.titles.size >= enough, "the writers have written");
    await kill(server);
    await Promise.all(writers);
    expect(integrity(path)).toBe("ok");
  }
  expect(acknowledged.titles.size).toBeGreaterThan(ROUNDS * WRITERS);
  await using server = serveFile(path);
  await verify(await server.url, acknowledged);
});

/** Creates to-dos and sets every second one to done until the server is gone. */
async function write(url: string, name: string, { titles, done, unanswered }: Acknowledged): Promise<void> {
  for (let i = 0; ; i++) {
    const title = `${name}.${i}`;
    const todo = await create(url, title);
    if (todo === undefined) {
      unanswered.add(title);
      return;
    }
    expect(titles.has(todo.id)).toBe(false);
    titles.set(todo.id, title);
    if (i % 2 === 0) continue;
    if ((await answered(sendJson(url, `PATCH /api/todos/${todo.id}`, { done: true }))) === undefined) return;
    done.add(todo.id);
  }
}

/** Repeats POSTs with their idempotency keys. No retry may create a second to-do, even if the first POST got no response. */
async function retry(url: string, { titles, unanswered }: Acknowledged): Promise<void> {
  for (const [id, title] of [...titles].slice(-RETRIES)) expect((await create(url, title))?.id).toBe(id);
  for (const title of unanswered) {
    const todo = await create(url, title);
    if (todo === undefined) throw new Error("the server is gone");
    expect(titles.has(todo.id)).toBe(false);
    titles.set(todo.id, title);
  }
  unanswered.clear();
  const all = (await listTodos(url)).map(({ title }) => title);
  expect(new Set(all).size).toBe(all.length);
}

const create = (url: string, title: string): Promise<ServedTodo | undefined> =>
  answered(postTodo(url, title, { "Idempotency-Key": title }));

/** Returns the to-do in the response, or `undefined` if the server was gone before it responded. */
async function answered(request: Promise<Response>): Promise<ServedTodo | undefined> {
  try {
    const response = await request;
    expect(response.ok).toBe(true);
    return JSON.parse(await response.text());
  } catch (error) {
    if (error instanceof TypeError || (error instanceof Error && "code" in error)) return undefined;
    throw error;
  }
}

async function verify(url: string, { titles, done }: Acknowledged): Promise<void> {
  const todos = await listTodos(url);
  expect(todos.map(({ id }) => id)).toEqual(todos.map((_, index) => index + 1));
  const lost = [...titles].filter(([id, title]) => todos[id - 1]?.title !== title);
  expect(lost).toEqual([]);
  expect([...done].filter((id) => todos[id - 1]?.done !== true)).toEqual([]);
}
