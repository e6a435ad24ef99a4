/** The targets as data: which figure each is judged by, and its limit. */

export interface Target {
  readonly description: string;
  /** `workload / label` (the first competitor's requests per CPU second divided by that one's) or a measurement's name. */
  readonly figure: string;
  readonly min?: number;
  readonly max?: number;
  /** Why it is missed, if it is. */
  readonly reason?: string;
}

const P99_NOISE = "The three readings of a p99 differ by more than a factor of two on this machine.";
const TWO_THREADS =
  "A second thread writes each row, waits for the disk, and wakes the first one. Fewer connections share the cost of one commit.";

const BODY =
  "The product checks the size, encoding and media type of a body more strictly than the peers, and reports all broken rules.";

export const targets: readonly Target[] = [
  ...["GET one", "GET one, browser's headers", "whoami", "POST", "GET list of 1,000"].map((workload) => ({
    description: `${workload} ≥ 1.2 × equal Go`,
    figure: `${workload} / Go, equal`,
    min: 1.2,
    ...(workload === "POST" && { reason: BODY }),
  })),
  {
    description: "whoami ≥ 1.0 × equal Elysia with prepared headers",
    figure: "whoami / Elysia (Bun), equal, prepared headers",
    min: 1,
    reason:
      "The peer answers with a Response whose headers it never changes, and records no outcome. Both spend about 0.4 µs on the token: half of it on SHA-256.",
  },
  {
    description: "GET one ≥ 1.2 × equal Elysia",
    figure: "GET one / Elysia (Bun), equal",
    min: 1.2,
  },
  {
    description: "GET one with a browser's headers ≥ 1.1 × equal Elysia",
    figure: "GET one, browser's headers / Elysia (Bun), equal",
    min: 1.1,
  },
  {
    description: "whoami ≥ 1.05 × equal Elysia",
    figure: "whoami / Elysia (Bun), equal",
    min: 1.05,
  },
  {
    description: "POST ≥ 1.0 × equal Elysia",
    figure: "POST / Elysia (Bun), equal",
    min: 1,
    reason: BODY,
  },
  {
    description: "SQLite: POST, each on disk, ≥ 0.72 × memory's at 64 connections",
    figure: "POST on SQLite / todo-service",
    min: 0.72,
    reason: TWO_THREADS,
  },
  {
    description: "SQLite: POST ≥ 0.88 × memory's at 256 connections",
    figure: "POST on SQLite, 256 connections / todo-service",
    min: 0.88,
    reason: TWO_THREADS,
  },
  {
    description: "GET one in private mode ≥ 0.85 × whoami",
    figure: "GET one in private mode / todo-service, whoami",
    min: 0.85,
    reason: "The runs on this machine differ by more than the distance to the target.",
  },
  { description: "whoami ≥ 0.75 × GET one", figure: "whoami / todo-service, GET one", min: 0.75 },
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
    reason: "The start checks the structure of the file, the CRC of each row, and the sum of the CRCs.",
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
    reason: P99_NOISE,
  })),
  {
    description: "200 clients guess one password: p99 of GET one ≤ 2 × without",
    figure: "p99 beside 200 logins of one user / before",
    max: 2,
    reason: P99_NOISE,
  },
  {
    description: "200 connections guess passwords of many users: p99 of others' GET one ≤ 2 × without them",
    figure: "p99 beside 200 logins of many users / before",
    max: 2,
    reason: P99_NOISE,
  },
  { description: "start to first response ≤ 300 ms", figure: "start to first response, ms", max: 300 },
];
