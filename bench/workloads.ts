/** What is measured, as data: the servers, the workloads, who meets whom, and the targets. */

/** One request, sent over and over. */
export interface Shot {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

/** A server under test: how to start it, with what environment, and the path that answers 200 when it is ready. */
export interface Server {
  readonly name: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly ready: string;
  readonly stores: boolean;
}

/** One line of a workload's table. */
export interface Contestant {
  readonly label: string;
  readonly server: Server;
  readonly shot: Shot;
}

/** The first contestant is the product, whom the others are compared with; `todos` is how many are stored before. */
export interface Workload {
  readonly name: string;
  readonly todos: number;
  readonly contestants: readonly [Contestant, ...Contestant[]];
}

/** A figure is `workload / label` (the product against that contestant) or the name an experiment gives it. */
export interface Target {
  readonly says: string;
  readonly figure: string;
  readonly least?: number;
  readonly most?: number;
}

export const root = new URL("..", import.meta.url).pathname;
const here = new URL(".", import.meta.url).pathname;
const bun = process.execPath;
export const node = `${here}node_modules/.bin/node`;

/** The product's command. */
export const todo: readonly string[] = [bun, "--no-env-file", "src/cli/main.ts"];

const token = "bench-token";
const tokenHash = new Bun.CryptoHasher("sha256").update(token).digest("hex");
/** Lines for the product's clients file. */
export const clientsFile = `bench:${tokenHash}\n`;

/**
 * "$PORT", "$CLIENTS" (a clients file), "$REPLY" (the bare handler's fixed reply) and "$STORE" (a new file) are
 * filled in at the start.
 */
export const product: Server = {
  name: "todo-service",
  command: [...todo, "serve", "--port", "$PORT", "--clients-file", "$CLIENTS"],
  env: { TODO_ADMIN_USER: "admin", TODO_ADMIN_PASSWORD: "bench-password" },
  ready: "/readyz",
  stores: true,
};
const logging: Server = {
  ...product,
  name: "todo-service, access log",
  command: [...product.command, "--access-log"],
};

const measured: Server = {
  ...product,
  name: "todo-service, metrics",
  command: [...product.command, "--metrics-port", "0"],
};

/** Off loopback there is no Host and, with none listed, no origin to look at: no request header is read. */
const offLoopback: Server = {
  ...product,
  name: "todo-service, off loopback",
  command: [...product.command, "--host", "0.0.0.0"],
};

/** The product on a SQLite file. */
export const onSqlite = (path: string): Server => ({
  ...product,
  name: "todo-service, SQLite",
  command: [...product.command, "--store", `sqlite:${path}`],
});
const onNewFile = onSqlite("$STORE");

/** The product on a new SQLite file, with each fsync delayed; strace slows down no other call, and is not the child. */
export const onSlowDisk = (delayMs: number): Server => ({
  ...onNewFile,
  name: `todo-service, SQLite, fsync + ${delayMs} ms`,
  command: [
    ...["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"],
    ...["-e", `inject=fsync,fdatasync:delay_exit=${delayMs * 1000}`],
    ...onNewFile.command,
  ],
});

/** The product on a PostgreSQL database. */
export const onPostgres = (url: string): Server => ({
  ...product,
  name: "todo-service, PostgreSQL",
  command: [...product.command, "--max-todos", "10000000"],
  env: { ...product.env, TODO_STORE: url },
});

/** The same database, with a transaction for each request. */
export const transactionEach = (url: string): Server => ({
  name: "a transaction each",
  command: [bun, "--no-env-file", `${here}servers/postgres-each.ts`],
  env: { PORT: "$PORT", POSTGRES: url },
  ready: "/livez",
  stores: true,
});

const peer = (name: string, file: string, runtime: readonly string[], stores = true): Server => ({
  name,
  command: [...runtime, `${here}servers/${file}`],
  env: { NODE_ENV: "production", PORT: "$PORT", CLIENT_SHA256: tokenHash, REPLY_FILE: "$REPLY" },
  ready: stores ? "/api/todos" : "/api/todos/1",
  stores,
});
export const bare = peer("bare Bun handler", "bare.ts", [bun, "--no-env-file"], false);
const fastify = peer("Fastify", "fastify.ts", [node]);
/** On current Node the response schema that Fastify's guide recommends makes a long list slower than without. */
const fastifyPlainList: Server = {
  ...fastify,
  name: "Fastify, list without schema",
  env: { ...fastify.env, LIST_SCHEMA: "off" },
};
const others = [
  logging,
  offLoopback,
  peer("Elysia (Bun)", "elysia.ts", [bun, "--no-env-file"]),
  peer("Hono (Node)", "hono.ts", [node]),
  peer("Express", "express.ts", [node]),
];

export const getOne: Shot = { method: "GET", path: "/api/todos/1", headers: {}, body: undefined };
export const getList: Shot = { ...getOne, path: "/api/todos" };
export const post: Shot = {
  method: "POST",
  path: "/api/todos",
  headers: { "content-type": "application/json" },
  body: '{"title":"buy milk and bread today"}',
};
const whoami: Shot = { ...getOne, path: "/api/whoami", headers: { authorization: `Bearer ${token}` } };

const contestant = (server: Server, shot: Shot, label = server.name): Contestant => ({ label, server, shot });
/** The product first, then those it is judged against, so that these are its neighbours in time. */
const against = (reference: Contestant, shot: Shot): Workload["contestants"] => [
  contestant(product, shot),
  reference,
  ...[fastify, ...others].map((server) => contestant(server, shot)),
];

export const workloads: readonly Workload[] = [
  { name: "GET one", todos: 1, contestants: against(contestant(bare, getOne), getOne) },
  {
    name: "whoami",
    todos: 1,
    contestants: against(contestant(product, getOne, "todo-service, GET one"), whoami),
  },
  { name: "POST", todos: 1, contestants: against(contestant(bare, post), post) },
  {
    name: "GET list of 1,000",
    todos: 1_000,
    contestants: [...against(contestant(bare, getList), getList), contestant(fastifyPlainList, getList)],
  },
  {
    name: "GET one with metrics",
    todos: 1,
    contestants: [contestant(measured, getOne), contestant(product, getOne, "todo-service, without")],
  },
  {
    name: "GET one on SQLite",
    todos: 1,
    contestants: [contestant(onNewFile, getOne), contestant(bare, getOne)],
  },
  {
    name: "POST on SQLite",
    todos: 1,
    contestants: [contestant(onNewFile, post), contestant(product, post, "todo-service, memory")],
  },
  {
    name: "GET list of 1,000 on SQLite",
    todos: 1_000,
    contestants: [contestant(onNewFile, getList), contestant(bare, getList)],
  },
];

export const targets: readonly Target[] = [
  { says: "GET one ≥ 0.90 of the bare handler", figure: "GET one / bare Bun handler", least: 0.9 },
  { says: "GET one ≥ 3 × Fastify", figure: "GET one / Fastify", least: 3 },
  { says: "whoami ≥ 0.75 of GET one", figure: "whoami / todo-service, GET one", least: 0.75 },
  { says: "POST ≥ 0.65 of a bare req.json() echo", figure: "POST / bare Bun handler", least: 0.65 },
  { says: "POST ≥ 2 × Fastify", figure: "POST / Fastify", least: 2 },
  {
    says: "GET list of 1,000 ≥ 0.85 of the bare handler",
    figure: "GET list of 1,000 / bare Bun handler",
    least: 0.85,
  },
  { says: "GET list of 1,000 ≥ 10 × Fastify", figure: "GET list of 1,000 / Fastify", least: 10 },
  {
    says: "100,000 to-dos: list after one change ≤ 1.3 × a repeated one",
    figure: "list after one change / repeated",
    most: 1.3,
  },
  { says: "1,000,000 to-dos: RSS ≤ 300 MB", figure: "RSS, MB", most: 300 },
  {
    says: "1,000,000 to-dos: a full list to a fast reader adds ≤ 64 MB",
    figure: "full list to a fast reader adds, MB",
    most: 64,
  },
  {
    says: "1,000,000 to-dos: a full list to a slow reader adds ≤ 64 MB",
    figure: "full list to a slow reader adds, MB",
    most: 64,
  },
  {
    says: "1,000,000 to-dos: p99 of others' GET one while a full list is sent ≤ 3 × of before",
    figure: "p99 while listing / before",
    most: 3,
  },
  {
    says: "GET one with metrics ≥ 0.95 of without",
    figure: "GET one with metrics / todo-service, without",
    least: 0.95,
  },
  {
    says: "SQLite: POST ≥ 0.80 of memory's, each on disk before its answer",
    figure: "POST on SQLite / todo-service, memory",
    least: 0.8,
  },
  {
    says: "SQLite: GET one ≥ 0.75 of the bare handler",
    figure: "GET one on SQLite / bare Bun handler",
    least: 0.75,
  },
  {
    says: "SQLite: GET list of 1,000 ≥ 0.75 of the bare handler",
    figure: "GET list of 1,000 on SQLite / bare Bun handler",
    least: 0.75,
  },
  {
    says: "SQLite: p99 of GET one beside writers, each fsync slowed by 20 ms ≤ 2 × of without",
    figure: "p99 with a slow disk / without",
    most: 2,
  },
  {
    says: "SQLite, 1,000,000 to-dos: start ≤ 1 s",
    figure: "start to first answer with them, ms",
    most: 1000,
  },
  {
    says: "SQLite, 1,000,000 to-dos: import ≥ 100,000/s",
    figure: "imported to-dos a second",
    least: 100_000,
  },
  {
    says: "PostgreSQL: POST through one replica ≥ 8 × a transaction each",
    figure: "POST through one replica / a transaction each",
    least: 8,
  },
  {
    says: "PostgreSQL: POST through three replicas ≥ 1.0 × one",
    figure: "POST through three replicas / through one",
    least: 1,
  },
  {
    says: "PostgreSQL: the same, with as many clients for each of the three",
    figure: "the same, with as many clients for each of the three",
    least: 1,
  },
  {
    says: "PostgreSQL: an event on another replica within 50 ms (p99) at 1,000 writes/s",
    figure: "p99 of an event on another replica at 1,000 writes/s, ms",
    most: 50,
  },
  { says: "PostgreSQL: GET one ≥ 0.3 × memory's", figure: "GET one on PostgreSQL / in memory", least: 0.3 },
  ...["slow heads", "slow bodies", "ranges", "slow readers"].map((attack) => ({
    says: `1,000 connections with ${attack}: p99 of others' GET one ≤ 2 × of before`,
    figure: `p99 beside ${attack} / before`,
    most: 2,
  })),
  ...["one user", "ever new users"].map((whose) => ({
    says: `200 connections guess the password of ${whose}: p99 of others' GET one ≤ 2 × of before`,
    figure: `p99 beside 200 logins of ${whose} / before`,
    most: 2,
  })),
  { says: "start to first answer ≤ 300 ms", figure: "start to first answer, ms", most: 300 },
];
