import { expect, test } from "bun:test";
import type { Command } from "./command.ts";
import { type Answer, isLinearizable, type Operation } from "./linearizability.ts";
import { type Postgres, startPostgres, urlAt, whyNoDatabase } from "./postgres.ts";
import { type Proxy as Network, startProxy } from "./postgres-proxy.ts";
import { type ServedTodo, sendJson } from "./served-todos.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { until } from "./until.ts";

const ROUNDS = Number(process.env.TODO_TEST_FAULT_ROUNDS ?? 2);
const REPLICAS = 3;
const CLIENTS = 16;
/** A small number, so that clients use the same to-dos. */
const TODOS_AT_ONCE = 8;

interface Item {
  readonly title: string;
  id: number | undefined;
  readonly history: Operation[];
}

/** Replicas of the service. Each can be killed, and starts again at another address. */
class Replicas implements AsyncDisposable {
  /** The URL of the shared database, as each replica reaches it. */
  readonly #databases: readonly string[];
  readonly #servers: Command[] = [];
  readonly urls: string[] = [];

  constructor(databases: readonly string[]) {
    this.#databases = databases;
  }

  async start(index: number): Promise<void> {
    const server = serve([], { TODO_STORE: this.#databases[index] ?? "" });
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

/** Clients that send random operations on a few to-dos to random replicas, each one operation at a time. */
class Clients {
  /** Every to-do that was ever created. */
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

  /** Records what a list shows of these to-dos. Returns the list as it was received. */
  async list(url: string, items: readonly Item[]): Promise<string> {
    const known = items.filter(({ id }) => id !== undefined);
    const start = performance.now();
    const reply = await send(url, "GET /api/todos");
    const end = performance.now();
    if (reply === undefined) return "";
    expect(reply.status).toBe(200);
    const todos: readonly ServedTodo[] = JSON.parse(reply.text);
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
      // A deleted to-do stays for some time, so that other clients also use it.
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
    const answer = reply === undefined ? undefined : answerTo(call, item, reply);
    item.history.push({ call, answer, start, end });
    if (reply === undefined) await Bun.sleep(20);
    return answer;
  }
}

/** The operations, each as often as it is listed. */
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
  if (call === "create") return send(url, "POST /api/todos", { title }, { "Idempotency-Key": `"${title}"` });
  const methods = { get: "GET", finish: "PATCH", reopen: "PATCH", delete: "DELETE" };
  const body = call === "finish" || call === "reopen" ? { done: call === "finish" } : undefined;
  return send(url, `${methods[call]} /api/todos/${id}`, body);
}

/** Sends a request. Returns `undefined` without a response, and for one that leaves the outcome open. */
async function send(...request: Parameters<typeof sendJson>): Promise<Reply | undefined> {
  try {
    const response = await sendJson(...request);
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
  const todo: ServedTodo = JSON.parse(text);
  item.id ??= todo.id;
  expect([todo.id, todo.title]).toEqual([item.id, item.title]);
  if (call === "get") return stateOf(todo);
  expect(todo.done).toBe(call === "finish");
  return "ok";
}

function stateOf(todo: ServedTodo | undefined): Answer {
  if (todo === undefined) return "absent";
  return todo.done ? "done" : "open";
}

function pick<T>(all: readonly T[]): T {
  const one = all[Math.floor(Math.random() * all.length)];
  if (one === undefined) throw new Error("nothing to pick from");
  return one;
}

const ready = (url: string): Promise<void> =>
  until(async () => (await send(url, "GET /readyz")) !== undefined, `${url} is ready`);

/** A PostgreSQL server with a synchronous standby. The two change places at each failover. */
class Cluster implements AsyncDisposable {
  primary: Postgres;
  #standby: Postgres;
  readonly #all = new AsyncDisposableStack();

  /** @param primary a server to dispose of as well */
  constructor(primary: Postgres, standby: Postgres) {
    this.primary = this.#all.use(primary);
    this.#standby = this.#all.use(standby);
  }

  get ports(): readonly number[] {
    return [this.primary.port, this.#standby.port];
  }

  async failOver(): Promise<void> {
    // Before the standby is synchronous again, a client might have read changes that it does not have.
    const isSynchronous = async () => (await this.primary.query(SYNCHRONOUS)).length > 0;
    await until(isSynchronous, "the standby is synchronous");
    await this.primary.stop("at once");
    await this.#standby.promote();
    [this.primary, this.#standby] = [this.#standby, this.primary];
  }

  /** Starts a new standby in place of the crashed primary. */
  async makeStandby(): Promise<void> {
    this.#standby = this.#all.use(await this.primary.standby(this.#standby.port));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#all.disposeAsync();
  }
}

const SYNCHRONOUS = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";

type Way = Awaited<ReturnType<typeof startWay>>;

async function startWay(stack: AsyncDisposableStack, database: string, ports: readonly number[]) {
  const proxies = await Promise.all(ports.map((port) => startProxy(urlAt(database, [port]))));
  for (const proxy of proxies) stack.use(proxy);
  const own = proxies.map(({ url }) => Number(new URL(url).port));
  return {
    url: urlAt(database, own),
    flow: (...flow: Parameters<Network["flow"]>): void => {
      for (const proxy of proxies) proxy.flow(...flow);
    },
    cut: (): void => {
      for (const proxy of proxies) proxy.cut();
    },
  };
}

interface Stage {
  readonly cluster: Cluster;
  readonly replicas: Replicas;
  readonly way: Way;
}

/** A replica that is cut off from its database answers later than this. */
const NO_ANSWER_WITHIN_MS = 3_000;

const answers = async (url: string): Promise<boolean> =>
  (await send(url, "GET /api/todos?limit=1")) !== undefined;

/** Expects that one replica does not respond, and waits until the others do. */
async function expectOnlyWithout(missing: number, urls: readonly string[]): Promise<void> {
  await Promise.all(
    urls.map(async (url, index) => {
      if (index !== missing) return until(() => answers(url), `replica ${index} responds`);
      const isAnswered = await Promise.race([answers(url), Bun.sleep(NO_ANSWER_WITHIN_MS)]);
      expect([index, isAnswered ?? false]).toEqual([index, false]);
    }),
  );
}

/** Returns the epoch of a replica. A request on a connection that the database closed gets a 503, so this repeats it. */
async function epochAt(url: string): Promise<string | undefined> {
  let epoch: string | undefined;
  await until(async () => {
    const response = await fetch(`${url}/api/todos?limit=1`);
    await response.text();
    epoch = /^"(.+)-\d+"$/.exec(response.headers.get("etag") ?? "")?.[1];
    return epoch !== undefined;
  }, `${url} sends an epoch`);
  return epoch;
}

/** The faults. Each checks that it had an effect. */
const FAULTS: Readonly<Record<string, (stage: Stage, round: number) => Promise<void>>> = {
  "a crash of the database": async ({ cluster, replicas }) => {
    await cluster.primary.stop("at once");
    expect(await Promise.all(replicas.urls.map(answers))).toEqual([false, false, false]);
    await cluster.primary.start();
  },
  "the end of all connections": async ({ cluster }) => {
    const [row] = await cluster.primary.query<{ ended: string }>(
      `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) AS ended FROM pg_stat_activity
       WHERE application_name = 'todo-service'`,
    );
    expect(Number(row?.ended)).toBeGreaterThanOrEqual(REPLICAS);
  },
  "a replica that is killed": async ({ replicas }, round) => {
    const index = round % REPLICAS;
    await replicas.kill(index);
    await expectOnlyWithout(index, replicas.urls);
    await replicas.start(index);
  },
  "a replica that is cut off": async ({ replicas, way }, round) => {
    // In every second round, only responses are lost: writes take effect, and no client learns of it.
    way.flow(round % 2 === 0 ? "pass" : "drop", "drop");
    await expectOnlyWithout(REPLICAS - 1, replicas.urls);
    way.cut();
    way.flow("pass", "pass");
  },
  "a standby that is promoted": async ({ cluster, replicas }) => {
    const before = await epochAt(pick(replicas.urls));
    await cluster.failOver();
    await Promise.all(replicas.urls.map(ready));
    // The clients write, so the new primary begins an epoch.
    await until(async () => {
      const after = await Promise.all(replicas.urls.map(epochAt));
      return after.every((epoch) => epoch === after[0] && epoch !== before);
    }, "all replicas are in a new epoch");
    await cluster.makeStandby();
  },
};

test.skipIf(skipFor(whyNoDatabase))(
  `the history of each to-do on all replicas is linearizable, also during ${ROUNDS} rounds of faults`,
  async () => {
    await using stack = new AsyncDisposableStack();
    const postgres = stack.use(await startPostgres());
    const database = await postgres.newDatabase();
    const cluster = stack.use(new Cluster(postgres, await postgres.standby()));
    const { ports } = cluster;
    // Slow calls are more likely to overlap with other calls.
    const slow = await startWay(stack, database, ports);
    slow.flow("late", "late");
    const way = await startWay(stack, database, ports);
    const databases = [slow.url, urlAt(database, ports), way.url];
    const replicas = stack.use(new Replicas(databases));
    for (const index of databases.keys()) await replicas.start(index);
    const clients = new Clients(replicas.urls);
    const faults: { readonly name: string; readonly start: number; readonly end: number }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      for (const [name, fault] of Object.entries(FAULTS)) {
        await Bun.sleep(200 + Math.random() * 300);
        const start = performance.now();
        await fault({ cluster, replicas, way }, round);
        await Promise.all(replicas.urls.map(ready));
        faults.push({ name, start, end: performance.now() });
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
    const next = await send(pick(replicas.urls), "POST /api/todos", { title: "next" });
    expect(JSON.parse(next?.text ?? "{}").id).toBe(items.length + 1);

    const all = items.flatMap(({ history }) => history);
    expect(all.length).toBeGreaterThan(500);
    for (const { name, start, end } of faults) {
      const meanwhile = all.filter((operation) => operation.start < end && operation.end > start);
      expect([name, meanwhile.length > CLIENTS]).toEqual([name, true]);
      // A replica may open new connections before a client notices that the old ones have ended.
      if (name === "the end of all connections") continue;
      const isUnanswered = meanwhile.some(({ answer }) => answer === undefined);
      expect([name, isUnanswered]).toEqual([name, true]);
    }
    expect(items.filter(({ history }) => !isLinearizable(history))).toEqual([]);
  },
  120_000 + ROUNDS * 60_000,
);
