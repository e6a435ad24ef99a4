/** The targets as data: which figure each is judged by, its limit, and why it is missed where it is. */

export interface Target {
  readonly description: string;
  /** `workload / label` (the first competitor's requests per CPU second divided by that one's) or a measurement's name. */
  readonly figure: string;
  readonly min?: number;
  readonly max?: number;
  /** Printed when the target is missed. */
  readonly explanation?: string;
}

export const targets: readonly Target[] = [
  {
    description: "GET one ≥ 1.2 × equal Elysia",
    figure: "GET one / Elysia (Bun), equal",
    min: 1.2,
  },
  {
    description: "GET one ≥ 0.82 × the bare handler",
    figure: "GET one / bare Bun handler",
    min: 0.82,
    explanation:
      "The bare handler reads nothing of the request. The product reads `Origin` and `Host` of each request as a defense against DNS rebinding. The first of these reads costs about 1 µs, because Bun then builds all headers.",
  },
  {
    description: "whoami ≥ 1.1 × equal Elysia",
    figure: "whoami / Elysia (Bun), equal",
    min: 1.1,
    explanation:
      "The product compares the token's hash in constant time, and its lookup may be asynchronous. Elysia here looks the hash up in a Map.",
  },
  {
    description: "POST ≥ 1.0 × equal Elysia",
    figure: "POST / Elysia (Bun), equal",
    min: 1,
    explanation:
      "The product also checks the size, the encoding and the media type of the body, and reports every rule that a body breaks. Elysia here checks one schema.",
  },
  {
    description: "GET list of 1,000 ≥ 0.95 × the bare handler",
    figure: "GET list of 1,000 / bare Bun handler",
    min: 0.95,
    explanation:
      "The product reads the query string, `If-None-Match`, `Origin` and `Host` of each request; the bare handler reads nothing.",
  },
  {
    description: "SQLite: POST, each on disk, ≥ 0.80 × memory's at 64 connections",
    figure: "POST on SQLite / todo-service",
    min: 0.8,
    explanation:
      "A POST on SQLite uses about 3 µs more. 2 µs are the writer's thread: the row, and a share of the events' row, of the commit and of the wake-up. 1 µs is for promises and batches.",
  },
  {
    description: "SQLite: POST ≥ 0.90 × memory's at 256 connections",
    figure: "POST on SQLite, 256 connections / todo-service",
    min: 0.9,
    explanation:
      "Larger batches share the cost of the commit and of the wake-up, but every to-do still needs a row.",
  },
  {
    description: "GET one in private mode ≥ 1.0 × whoami",
    figure: "GET one in private mode / todo-service, whoami",
    min: 1,
    explanation:
      "Both look the token up. Private mode also checks that the connection is secure, reads the to-do and adds two headers.",
  },
  { description: "whoami ≥ 0.75 × GET one", figure: "whoami / todo-service, GET one", min: 0.75 },
  {
    description: "POST ≥ 0.65 × bare handler, which parses and returns the body",
    figure: "POST / bare Bun handler",
    min: 0.65,
    explanation:
      "In a sampled profile, the runtime's own reading of the body is 41 % of the time, waiting for it 19 %, the headers 6 % and the `Response` 5 %. The product's checks, its encoding and its store are about a tenth.",
  },
  {
    description: "POST ≥ 2 × Fastify",
    figure: "POST / Fastify",
    min: 2,
    explanation:
      "The row of the bare handler shows what it costs to read and parse the body alone. The product also checks, encodes and stores the to-do.",
  },
  {
    description: "GET list of 1,000 ≥ 10 × Fastify",
    figure: "GET list of 1,000 / Fastify",
    min: 10,
    explanation: "The spread includes 10, so this run does not decide it.",
  },
  {
    description: "GET one with metrics ≥ 0.95 × without",
    figure: "GET one with metrics / todo-service",
    min: 0.95,
    explanation: "With metrics, the server reads the clock twice and counts and times each request.",
  },
  {
    description: "SQLite: GET one ≥ 0.75 × the bare handler",
    figure: "GET one on SQLite / bare Bun handler",
    min: 0.75,
  },
  {
    description: "SQLite: GET list of 1,000 ≥ 0.75 × the bare handler",
    figure: "GET list of 1,000 on SQLite / bare Bun handler",
    min: 0.75,
  },
  {
    description: "100,000 to-dos: a list after one change takes ≤ 1.3 × a repeated list",
    figure: "list after one change / repeated",
    max: 1.3,
  },
  { description: "1,000,000 to-dos: RSS ≤ 300 MB", figure: "RSS, MB", max: 300 },
  {
    description: "1,000,000 to-dos: a full list to a fast client adds ≤ 64 MB",
    figure: "full list to a fast client adds, MB",
    max: 64,
  },
  {
    description: "1,000,000 to-dos: a full list to a slow client adds ≤ 64 MB",
    figure: "full list to a slow client adds, MB",
    max: 64,
  },
  {
    description: "1,000,000 to-dos: p99 of GET one while a full list is sent ≤ 3 × without it",
    figure: "p99 while a full list is sent / before",
    max: 3,
  },
  {
    description:
      "SQLite: p99 of GET one beside writers, with each fsync delayed by 20 ms ≤ 2 × without delay",
    figure: "p99 with a slow disk / without",
    max: 2,
  },
  {
    description: "SQLite, 1,000,000 to-dos: start ≤ 1,000 ms",
    figure: "start to first response with them, ms",
    max: 1000,
    explanation:
      "The server reads every to-do and computes the checksum of the contents before it answers. The rows below show how long the same machine needs for a start without to-dos.",
  },
  {
    description: "SQLite, 1,000,000 to-dos: import ≥ 100,000 per second",
    figure: "to-dos imported per second",
    min: 100_000,
  },
  {
    description: "PostgreSQL: POST through one replica ≥ 8 × one transaction per request",
    figure: "POST through one replica / one transaction per request",
    min: 8,
  },
  {
    description: "PostgreSQL: POST via three replicas ≥ 1.0 × one, same clients",
    figure: "POST through three replicas / through one",
    min: 1,
    explanation:
      "Each replica has a third of the clients, and so a third of the batch size. The same writes need three times the transactions. Most of the database's work is the fixed cost of a transaction (0.3 ms): the counter row, the log, the round trip and the wait for the others. All replicas and the database share one core here. The table shows where the CPU time goes. The counter row is the limit by design; replicas serve reads, more clients, and machines that fail. [A model of it](../docs/explanation/beyond-one-primary.md).",
  },
  {
    description: "PostgreSQL: the same with as many clients for each of the three",
    figure: "POST through three replicas, as many clients each / through one",
    min: 1,
    explanation:
      "The batches are as large as with one replica, so both use the whole core. Values from 0.8 to 1.2 were seen.",
  },
  {
    description: "PostgreSQL: an event reaches another replica within 50 ms (p99) at 1,000 writes per second",
    figure: "p99 of an event on another replica at 1,000 writes per second, ms",
    max: 50,
  },
  {
    description: "PostgreSQL: GET one ≥ 0.3 × memory's",
    figure: "GET one on PostgreSQL / in memory",
    min: 0.3,
  },
  ...["slow heads", "slow bodies", "ranges", "slow readers"].map((attack) => ({
    description: `1,000 connections with ${attack}: p99 of others' GET one ≤ 2 × without them`,
    figure: `p99 beside ${attack} / before`,
    max: 2,
  })),
  {
    description: "200 clients guess one password: p99 of GET one ≤ 2 × without",
    figure: "p99 beside 200 logins of one user / before",
    max: 2,
    explanation:
      "Everything shares one core here, which the load saturates. The cause is the same as for passwords of many users: a thread that hashes keeps the core for a kernel tick (4 ms).",
  },
  {
    description: "200 connections guess passwords of many users: p99 of others' GET one ≤ 2 × without them",
    figure: "p99 beside 200 logins of many users / before",
    max: 2,
    explanation:
      "Everything shares one core here, which the load saturates, and two threads there hash passwords with a nice value of 15. Each of them gets about 3 % of the core in pieces of one kernel tick (4 ms), so that one GET in thirty waits for such a piece. With the kernel's idle class (SCHED_IDLE) the p99 is 1.4 to 1.9 ms instead of 3.5 ms, but then an administrator's own login waits until the load ends; with the nice value it takes 2.9 s. With a free core neither waits.",
  },
  { description: "start to first response ≤ 300 ms", figure: "start to first response, ms", max: 300 },
];
