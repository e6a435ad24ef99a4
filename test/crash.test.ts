import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, runTodo } from "./command.ts";

const ROUNDS = Number(process.env.TODO_TEST_CRASH_ROUNDS ?? 8);
const WRITERS = 8;
const READY_WITHIN_MS = 2000;

/** What has been acknowledged: the title of each id, and the ids set to done. */
interface Acknowledged {
  readonly titles: Map<number, string>;
  readonly done: Set<number>;
}

interface Todo {
  readonly id: number;
  readonly title: string;
  readonly done: boolean;
}

test(
  `what was acknowledged is there after ${ROUNDS} times kill -9`,
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "todo-crash-"));
    const path = join(folder, "todos.db");
    const acknowledged: Acknowledged = { titles: new Map(), done: new Set() };
    try {
      for (let round = 0; round < ROUNDS; round++) {
        const started = performance.now();
        await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
        const url = await server.url;
        await verify(url, acknowledged);
        expect(performance.now() - started).toBeLessThan(READY_WITHIN_MS);
        const writers = Array.from({ length: WRITERS }, (_, writer) =>
          write(url, `${round}.${writer}`, acknowledged),
        );
        await Bun.sleep(100 + Math.random() * 150);
        await kill(server);
        await Promise.all(writers);
        expect(integrity(path)).toEqual("ok");
      }
      expect(acknowledged.titles.size).toBeGreaterThan(ROUNDS * WRITERS);
      await using server = runTodo(["serve", "--port", "0", "--store", `sqlite:${path}`]);
      await verify(await server.url, acknowledged);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  10_000 + ROUNDS * 3000,
);

async function kill(server: Command): Promise<void> {
  server.kill("SIGKILL");
  await server.exited;
}

/** Creates to-dos, and sets every other one to done, until the server is gone. */
async function write(url: string, name: string, { titles, done }: Acknowledged): Promise<void> {
  for (let i = 0; ; i++) {
    const title = `${name}.${i}`;
    const todo = await send("POST", `${url}/api/todos`, { title });
    if (todo === undefined) return;
    expect(titles.has(todo.id)).toBe(false);
    titles.set(todo.id, title);
    if (i % 2 === 0) continue;
    if ((await send("PATCH", `${url}/api/todos/${todo.id}`, { done: true })) === undefined) return;
    done.add(todo.id);
  }
}

/** The to-do in the answer; `undefined` when there was none, for the server was gone. */
async function send(method: string, url: string, body: object): Promise<Todo | undefined> {
  try {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(url, { method, headers, body: JSON.stringify(body) });
    expect(response.ok).toBe(true);
    return JSON.parse(await response.text());
  } catch (error) {
    if (error instanceof TypeError || (error instanceof Error && "code" in error)) return undefined;
    throw error;
  }
}

async function verify(url: string, { titles, done }: Acknowledged): Promise<void> {
  const response = await fetch(`${url}/api/todos`);
  const todos: readonly Todo[] = JSON.parse(await response.text());
  expect(todos.map(({ id }) => id)).toEqual(todos.map((_, index) => index + 1));
  const lost = [...titles].filter(([id, title]) => todos[id - 1]?.title !== title);
  expect(lost).toEqual([]);
  expect([...done].filter((id) => todos[id - 1]?.done !== true)).toEqual([]);
}

function integrity(path: string): unknown {
  const database = new Database(path);
  try {
    return database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").get()?.integrity_check;
  } finally {
    database.close();
  }
}
