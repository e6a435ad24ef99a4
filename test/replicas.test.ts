import { expect, test } from "bun:test";
import { type Command, runTodo } from "./command.ts";
import { type Answer, isLinearizable, type Operation } from "./linearizability.ts";
import { type Postgres, startPostgres, whyNoServer } from "./postgres.ts";
import { startProxy } from "./postgres-proxy.ts";

/** How often a fault of each kind happens. */
const ROUNDS = Number(process.env.TODO_TEST_FAULT_ROUNDS ?? 3);
const REPLICAS = 3;
const CLIENTS = 16;
/** Few, so that clients meet. */
const TODOS_AT_ONCE = 8;
const RESUMES_WITHIN_MS = 5000;

interface Todo {
  readonly id: number;
  readonly title: string;
  readonly done: boolean;
}

/** A to-do, and all that clients asked of it. */
interface Item {
  readonly title: string;
  id: number | undefined;
  readonly history: Operation[];
}

/** Replicas of the service, each of which can be killed and comes back at another address. */
class Replicas implements AsyncDisposable {
  /** The URL of their one database as each of them reaches it. */
  readonly #databases: readonly string[];
  readonly #servers: Command[] = [];
  readonly urls: string[] = [];

  constructor(databases: readonly string[]) {
    this.#databases = databases;
  }

  async start(index: number): Promise<void> {
    const server = runTodo(["serve", "--port", "0"], { TODO_STORE: this.#databases[index] ?? "" });
    this.#servers[index] = server;
    this.urls[index] = await server.url;
  }

  async kill(index: number): Promise<void> {
    this.#servers[index]?.kill("SIGKILL");
    await this.#servers[index]?.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.keys().map((index) => this.kill(index)));
  }
}

/** Clients that ask this and that of a few to-dos, each one thing after the other, of whichever replica. */
class Clients {
  /** Every to-do there ever was. */
  readonly items: Item[] = [];
  readonly #urls: readonly string[];
  readonly #current: Item[];
  readonly #running: Promise<unknown>;
  #isStopped = false;

  constructor(urls: readonly string[]) {
    this.#urls = urls;
    this.#current = Array.from({ length: TODOS_AT_ONCE }, () => this.#newItem());
    this.#running = Promise.all(Array.from({ length: CLIENTS }, () => this.#run()));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    for (const item of this.items) {
      for (let i = 0; item.id === undefined && i < 100; i++)
        await this.#ask(pick(this.#urls), item, "create");
    }
  }

  /** Notes what a list shows of some to-dos; gives it as it came. */
  async list(url: string, items: readonly Item[]): Promise<string> {
    const known = items.filter(({ id }) => id !== undefined);
    const start = performance.now();
    const reply = await send(url, "GET", "/api/todos");
    const end = performance.now();
    if (reply === undefined) return "";
    expect(reply.status).toBe(200);
    const todos: readonly Todo[] = JSON.parse(reply.text);
    const listed = new Map(todos.map((todo) => [todo.id, todo]));
    for (const item of known) {
      const todo = listed.get(item.id ?? 0);
      expect(todo?.title ?? item.title).toBe(item.title);
      item.history.push({ call: "get", answer: stateOf(todo), start, end });
    }
    return reply.text;
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const url = pick(this.#urls);
      const slot = Math.floor(Math.random() * TODOS_AT_ONCE);
      const item = this.#current[slot];
      if (item === undefined) return;
      const chance = Math.random();
      if (chance < 0.02) {
        await this.list(url, this.#current);
        continue;
      }
      const answer = await this.#ask(url, item, item.id === undefined ? "create" : pick(CALLS));
      // One that is gone stays for some time, for others to find that.
      if (answer === "absent" && Math.random() < 0.1) this.#current[slot] = this.#newItem();
    }
  }

  #newItem(): Item {
    const item: Item = { title: `to-do ${this.items.length}`, id: undefined, history: [] };
    this.items.push(item);
    return item;
  }

  async #ask(url: string, item: Item, call: Operation["call"]): Promise<Answer | undefined> {
    const start = performance.now();
    const reply = await request(url, item, call);
    const end = performance.now();
    // Another client asks for the same to-do: this one was not looked at.
    if (reply?.status === 409) return undefined;
    const answer = reply === undefined ? undefined : answerTo(call, item, reply);
    item.history.push({ call, answer, start, end });
    if (reply === undefined) await Bun.sleep(20);
    return answer;
  }
}

/** As often as they are here. */
const CALLS: readonly Operation["call"][] = [
  ...Array.from({ length: 14 }, () => "get" as const),
  ...Array.from({ length: 7 }, () => "finish" as const),
  ...Array.from({ length: 7 }, () => "reopen" as const),
  "create",
  "delete",
];

interface Reply {
  readonly status: number;
  readonly text: string;
}

function request(url: string, { id, title }: Item, call: Operation["call"]): Promise<Reply | undefined> {
  switch (call) {
    case "create":
      return send(url, "POST", "/api/todos", { title }, title);
    case "get":
      return send(url, "GET", `/api/todos/${id}`);
    case "finish":
      return send(url, "PATCH", `/api/todos/${id}`, { done: true });
    case "reopen":
      return send(url, "PATCH", `/api/todos/${id}`, { done: false });
    case "delete":
      return send(url, "DELETE", `/api/todos/${id}`);
  }
}

/** Sends a request; `undefined` for an answer that says nothing of what became of it, or none. */
async function send(
  url: string,
  method: string,
  path: string,
  body?: object,
  key?: string,
): Promise<Reply | undefined> {
  const headers = {
    "Content-Type": "application/json",
    ...(key !== undefined && { "Idempotency-Key": `"${key}"` }),
  };
  try {
    const init = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) };
    const response = await fetch(url + path, init);
    const text = await response.text();
    return response.status === 503 ? undefined : { status: response.status, text };
  } catch {
    return undefined;
  }
}

function answerTo(call: Operation["call"], item: Item, { status, text }: Reply): Answer {
  if (status === 404) return "absent";
  if (call === "delete") {
    expect(status).toBe(204);
    return "ok";
  }
  expect(status).toBe(call === "create" ? 201 : 200);
  const todo: Todo = JSON.parse(text);
  item.id ??= todo.id;
  expect([todo.id, todo.title]).toEqual([item.id, item.title]);
  if (call === "get") return stateOf(todo);
  expect(todo.done).toBe(call === "finish");
  return "ok";
}

function stateOf(todo: Todo | undefined): Answer {
  if (todo === undefined) return "absent";
  return todo.done ? "done" : "open";
}

function pick<T>(all: readonly T[]): T {
  const one = all[Math.floor(Math.random() * all.length)];
  if (one === undefined) throw new Error("there is nothing to pick");
  return one;
}

/** Waits until all replicas can be asked. */
async function ready(urls: readonly string[]): Promise<void> {
  const start = performance.now();
  for (const url of urls) {
    while ((await send(url, "GET", "/readyz")) === undefined) {
      expect(performance.now() - start).toBeLessThan(RESUMES_WITHIN_MS);
      await Bun.sleep(10);
    }
  }
}

const FAULTS: ((postgres: Postgres, replicas: Replicas, round: number) => Promise<unknown>)[] = [
  async (postgres) => {
    await postgres.stop("at once");
    await Bun.sleep(Math.random() * 200);
    await postgres.start();
  },
  (postgres) =>
    postgres.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'todo-service'",
    ),
  async (_postgres, replicas, round) => {
    await replicas.kill(round % REPLICAS);
    await Bun.sleep(Math.random() * 200);
    await replicas.start(round % REPLICAS);
  },
];

test.skipIf(whyNoServer !== undefined)(
  `replicas are one store to their clients, also through ${ROUNDS} rounds of faults`,
  async () => {
    await using postgres = await startPostgres();
    const database = await postgres.newDatabase();
    // What takes longer is more often met by something else.
    await using slow = await startProxy(database);
    slow.flow("late", "late");
    const databases = [slow.url, ...Array.from({ length: REPLICAS - 1 }, () => database)];
    await using replicas = new Replicas(databases);
    for (const index of databases.keys()) await replicas.start(index);
    const clients = new Clients(replicas.urls);
    for (let round = 0; round < ROUNDS; round++) {
      for (const fault of FAULTS) {
        await Bun.sleep(200 + Math.random() * 300);
        await fault(postgres, replicas, round);
        await ready(replicas.urls);
      }
    }
    await Bun.sleep(200);
    await clients.stop();

    const lists: string[] = [];
    for (const url of replicas.urls) lists.push(await clients.list(url, clients.items));
    expect(new Set(lists).size).toBe(1);
    const { items } = clients;
    const ids = items.map(({ id }) => id ?? 0).toSorted((a, b) => a - b);
    expect(ids).toEqual(ids.map((_, index) => index + 1));
    const next = await send(pick(replicas.urls), "POST", "/api/todos", { title: "next" });
    expect(JSON.parse(next?.text ?? "{}").id).toBe(items.length + 1);

    const all = items.flatMap(({ history }) => history);
    expect(all.length).toBeGreaterThan(1000);
    expect(all.filter(({ answer }) => answer === undefined).length).toBeGreaterThan(0);
    expect(items.filter(({ history }) => !isLinearizable(history))).toEqual([]);
  },
  30_000 + ROUNDS * 20_000,
);
