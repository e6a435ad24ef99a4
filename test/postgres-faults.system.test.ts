import { beforeEach, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { mintToken } from "../src/credential/token.ts";
import { ServiceError } from "../src/error.ts";
import { getErrno } from "../src/error-message.ts";
import { Primary } from "../src/storage/postgres/primary.ts";
import { openPostgres } from "../src/storage/postgres/store.ts";
import { startPostgres, urlAt, whyNoDatabase } from "./postgres.ts";
import { startProxy } from "./postgres-proxy.ts";
import { listTodos, postTodo, sendJson } from "./served-todos.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { follow } from "./sse.ts";
import { failureOf, read, take } from "./store-contract.ts";
import { usePostgres } from "./stores.ts";
import { until } from "./until.ts";

const RESUMES_WITHIN_MS = 60_000;
const EVENTS = 1000;
const KEY = { "Idempotency-Key": "key" };

const resumed = (url: string): Promise<void> =>
  until(
    async () => (await postTodo(url, "resumed").catch(ifReset))?.status === 201,
    "the service writes again",
  );

async function retried<T>(call: () => T): Promise<Awaited<T>> {
  const start = performance.now();
  while (true) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ServiceError) || performance.now() - start > RESUMES_WITHIN_MS) throw error;
      await Bun.sleep(10);
    }
  }
}

function ifReset(error: unknown): undefined {
  if (getErrno(error) !== "ECONNRESET") throw error;
}

describe.skipIf(skipFor(whyNoDatabase))("a PostgreSQL server", () => {
  const postgres = usePostgres({});
  let database: string;
  beforeEach(async () => {
    // A failed test may have left the server stopped.
    await postgres.start();
    database = await postgres.newDatabase();
  });

  const terminate = (whose: string): Promise<readonly unknown[]> =>
    postgres.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = '${new URL(database).pathname.slice(1)}' AND ${whose}`);

  test("that is stopped causes 503 responses, and is used again after its restart", async () => {
    const token = mintToken();
    await using server = serve([], { TODO_STORE: database });
    const url = await server.url;
    for (const how of ["in order", "at once"] as const) {
      // The service has sent no query since its start, or since the restart of the database.
      await postgres.stop(how);
      const asked: [line: string, body?: object][] = [
        ["GET /api/todos"],
        ["GET /api/todos/1"],
        ["GET /readyz"],
        ["POST /api/todos", { title: "x" }],
        ["PATCH /api/todos/1", { done: true }],
        ["DELETE /api/todos/1"],
      ];
      const answers = await Promise.all(asked.map((request) => sendJson(url, ...request)));
      for (const answer of answers) {
        expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "5"]);
        expect(JSON.parse(await answer.text()).code).toBe("store_unavailable");
      }
      const headers = { Authorization: `Bearer ${token}` };
      expect((await fetch(`${url}/api/whoami`, { headers })).status).toBe(503);
      expect((await fetch(`${url}/livez`)).status).toBe(200);

      await postgres.start();
      await resumed(url);
      expect((await fetch(`${url}/readyz`)).status).toBe(200);
      expect((await fetch(`${url}/api/whoami`, { headers })).status).toBe(401);
    }
    expect(await listTodos(url)).toEqual([1, 2].map((id) => ({ id, title: "resumed", done: false })));
  });

  test("whose response to a commit is lost causes a 503, and a retry with the same key returns the created to-do", async () => {
    await using proxy = await startProxy(database);
    await using server = serve([], { TODO_STORE: proxy.url });
    const url = await server.url;
    const stored = new SQL(database, { max: 1 });
    const position = async (): Promise<string> =>
      (await stored`SELECT sequence FROM todo_service.store`)[0].sequence;
    const loseTheAnswerTo = async (request: () => Promise<Response>): Promise<void> => {
      const before = await position();
      // A new connection first prepares the query, so it is cut before the commit. Then try again, and wait longer.
      for (let looks = 20; (await position()) === before; looks *= 2) {
        proxy.flow("pass", "drop");
        const answer = request();
        for (let i = 0; i < looks && (await position()) === before; i++) await Bun.sleep(5);
        proxy.cut();
        proxy.flow("pass", "pass");
        expect((await answer).status).toBe(503);
        await sendJson(url, "PATCH /api/todos/99", { done: true });
      }
    };
    await loseTheAnswerTo(() => postTodo(url, "a", KEY));
    for (let i = 0; i < 2; i++) {
      const again = await postTodo(url, "a", KEY);
      expect([again.status, await again.text()]).toEqual([201, '{"id":1,"title":"a","done":false}']);
    }
    expect((await postTodo(url, "b", KEY)).status).toBe(422);
    await loseTheAnswerTo(() => sendJson(url, "PATCH /api/todos/1", { done: true }));
    expect(await listTodos(url)).toEqual([{ id: 1, title: "a", done: true }]);
    await loseTheAnswerTo(() => sendJson(url, "DELETE /api/todos/1"));
    expect(await listTodos(url)).toEqual([]);
    await stored.close();
  });

  test("that stops responding makes calls fail in time, and is used again once it responds", async () => {
    await using proxy = await startProxy(database);
    const { host } = new URL(proxy.url);
    // The timeout of each host is a fifth of the total time.
    const url = proxy.url.replace(host, Array.from({ length: 6 }, () => host).join());
    const store = await retried(() => openPostgres(url, { queryTimeoutMs: 2_000 }));
    const patient = await openPostgres(url, { queryTimeoutMs: 60_000 });
    await retried(() => store.insert("a"));
    for (const [toServer, toClient] of [
      ["drop", "drop"],
      ["pass", "drop"],
      ["hold", "hold"],
    ] as const) {
      proxy.flow(toServer, toClient);
      const waiting = failureOf(patient.get(1n)).then(() => "the patient store");
      const asked: Promise<string | undefined>[] = [];
      for (let i = 0; i < 8; i++) {
        for (const call of [store.get(1n), store.insert("b"), store.keys.list()]) asked.push(failureOf(call));
        await Bun.sleep(100);
      }
      // Another store measures the time, because this process may stall.
      const codes = await Promise.race([Promise.all(asked), waiting]);
      expect(codes).toEqual(asked.map(() => "store_unavailable"));
      proxy.flow("pass", "pass");
      await retried(() => store.insert("c"));
      expect(await retried(() => store.get(1n))).toBeDefined();
    }
    await store.close();
    await patient.close();
  });

  test("that is reached after the timeout does not receive the query", async () => {
    const stored = new SQL(database, { max: 1 });
    await stored.unsafe("CREATE TABLE asked (n bigint)");
    // The timeout of each of the six hosts is a fifth of the total time. Only the seventh responds.
    const silent = await Promise.all(Array.from({ length: 6 }, () => startProxy(database)));
    for (const { flow } of silent) flow("drop", "drop");
    const ports = [...silent.map(({ url }) => Number(new URL(url).port)), postgres.port];
    const primary = new Primary(urlAt(database, ports), { connections: 4, queryTimeoutMs: 5_000 });
    const ask = (n: number) => failureOf(primary.query("INSERT INTO public.asked VALUES ($1)", [n]));
    expect(await ask(0)).toBe("store_unavailable");
    let n = 1;
    const start = performance.now();
    for (; (await ask(n)) !== undefined; n++)
      expect(performance.now() - start).toBeLessThan(RESUMES_WITHIN_MS);
    const asked = (await stored.unsafe<{ n: string }[]>("SELECT n FROM asked")).map((row) => Number(row.n));
    expect(asked).toContain(n);
    expect(asked).not.toContain(0);
    await primary.close();
    await stored.close();
    for (const proxy of silent) await proxy[Symbol.asyncDispose]();
  });

  test.each<[how: string, lose: () => Promise<(isWritten: () => boolean) => Promise<void>>]>([
    [
      "are lost with their connection",
      async () => async (isWritten) => {
        let ended = 0;
        while (!isWritten()) ended += (await terminate("query ILIKE 'listen %'")).length;
        expect(ended).toBeGreaterThan(0);
      },
    ],
    [
      "are never sent",
      async () => {
        const sql = new SQL(database, { max: 1 });
        const [row] = await sql.unsafe<{ write: string }[]>(
          "SELECT pg_get_functiondef('todo_service.write'::regproc) AS write",
        );
        const silent = row?.write.replace("PERFORM pg_notify(", "PERFORM concat(") ?? "";
        expect(silent).not.toContain("pg_notify");
        await sql.unsafe(silent).simple();
        await sql.close();
        return async () => {};
      },
    ],
  ])("whose notifications %s lets another replica send every change", async (_how, lose) => {
    await using server = serve([], { TODO_STORE: database });
    await using another = serve([], { TODO_STORE: database });
    const [url, otherUrl] = await Promise.all([server.url, another.url]);
    const losing = await lose();
    await using first = await follow(otherUrl);
    const [start] = await first.take(1);
    await using second = await follow(otherUrl, { since: start?.id ?? "" });
    const told = Promise.all([first, second].map((events) => events.take(EVENTS)));
    // If the test fails first, an unhandled rejection would hide the reason.
    told.catch(() => {});
    let isWritten = false;
    const lost = losing(() => isWritten);
    for (let i = 0; i < EVENTS / 10; i++) {
      await Promise.all(Array.from({ length: 10 }, (_, j) => postTodo(url, `${i}.${j}`)));
      await Bun.sleep(5);
    }
    isWritten = true;
    await lost;
    for (const events of await told) {
      expect(events.map(({ type, data }) => [type, JSON.parse(data).id])).toEqual(
        Array.from({ length: EVENTS }, (_, index) => ["created", index + 1]),
      );
      expect(events.map(({ id }) => Number(id.replace(/^.*-/, "")))).toEqual(
        Array.from({ length: EVENTS }, (_, index) => index + 1),
      );
    }
  });

  test("whose synchronous standby is missing acknowledges no write, even with large responses", async () => {
    const store = await retried(() => openPostgres(database, { queryTimeoutMs: 2_000 }));
    await retried(() => store.insert("a"));
    await postgres.query("ALTER SYSTEM SET synchronous_standby_names = 'gone'");
    try {
      await postgres.query("SELECT pg_reload_conf()");
      const early: Promise<unknown>[] = [];
      await until(async () => {
        early.push(failureOf(store.insert("early")));
        const waiting = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        return (await postgres.query(waiting)).length > 0;
      }, "a write waits for the standby");
      await Promise.all(early);
      // The responses are larger than the buffer that PostgreSQL keeps until the commit.
      const asked = Array.from({ length: 500 }, () => failureOf(store.insert("x".repeat(120))));
      expect(new Set(await Promise.all(asked))).toEqual(new Set(["store_unavailable"]));
    } finally {
      await postgres.query("ALTER SYSTEM RESET synchronous_standby_names");
      await postgres.query("SELECT pg_reload_conf()");
    }
    await until(async () => (await failureOf(store.insert("b"))) === undefined, "the store writes again");
    await store.close();
  });

  // Like a machine without power, and like a balancer without a server.
  test.each(["does not respond", "closes every connection"])("is reached soon if a host %s", async (how) => {
    await using gone = await startProxy(urlAt(database, [how === "does not respond" ? postgres.port : 1]));
    if (how === "does not respond") gone.flow("drop", "drop");
    const start = performance.now();
    const store = await openPostgres(urlAt(database, [Number(new URL(gone.url).port), postgres.port]));
    await store.insert("a");
    expect(performance.now() - start).toBeLessThan(RESUMES_WITHIN_MS);
    await store.close();
  });

  test("whose data is replaced by an old copy knows no position of its lost future", async () => {
    const store = await openPostgres(database);
    const titles = async () => (await read(await store.list({}))).todos.map(({ title }) => title);
    await store.insert("a");
    const kept = await store.position();
    await store.insert("b");
    const last = await store.position();
    const putBack = await postgres.copyData();
    await retried(() => store.insert("lost"));
    const lost = await store.position();
    await putBack();

    expect(await retried(titles)).toEqual(["a", "b"]);
    expect(await store.position()).toEqual(last);
    expect(await take(store, lost, 1)).toEqual([]);
    expect((await store.insert("c")).id).toBe(3n);
    const { epoch, sequence } = await store.position();
    expect([epoch === lost.epoch, sequence]).toEqual([false, lost.sequence]);
    expect(await take(store, lost, 1)).toEqual([]);
    expect((await take(store, kept, 2)).map(({ todo }) => todo?.title)).toEqual(["b", "c"]);
    await store.close();
  });

  test("positions stay valid after restarts of a server", async () => {
    const store = await openPostgres(database);
    const start = await store.position();
    await store.insert("a");
    const before = await store.position();
    expect(before.epoch).toBe(start.epoch);
    await postgres.stop("at once");
    await postgres.start();
    expect(await retried(() => store.position())).toEqual(before);
    await store.insert("b");
    expect((await store.position()).epoch).not.toBe(before.epoch);
    for (const reader of [store, await openPostgres(database)]) {
      expect((await take(reader, start, 2)).map(({ todo }) => todo?.title)).toEqual(["a", "b"]);
      expect((await take(reader, before, 1)).map(({ todo }) => todo?.title)).toEqual(["b"]);
      await reader.close();
    }
  });

  test("that has become a standby is replaced by another host", async () => {
    await using primary = await startPostgres();
    await using standby = await primary.standby();
    const database = await primary.newDatabase();
    const hasDatabase = `SELECT FROM pg_database WHERE datname = '${new URL(database).pathname.slice(1)}'`;
    await until(async () => (await standby.query(hasDatabase)).length > 0, "the standby has the database");
    // The first host has no server, and the second one accepts no writes.
    const store = await openPostgres(urlAt(database, [1, standby.port, primary.port]));
    await store.insert("a");
    const before = await store.position();
    await standby.promote();
    const another = await retried(() => openPostgres(urlAt(database, [standby.port])));
    await another.insert("b");
    await primary.demote();
    // The standby, which lacks the second to-do, answers no read.
    const { position, todos } = await read(await retried(() => store.list({})));
    expect(todos.map(({ title }) => title)).toEqual(["a", "b"]);
    expect(position.epoch).not.toBe(before.epoch);
    expect(await take(store, { ...before, sequence: before.sequence + 1 }, 1)).toEqual([]);
    expect(await take(store, before, 1)).toHaveLength(1);
    await retried(() => store.insert("c"));
    await Promise.all([store.close(), another.close()]);
  });
});
