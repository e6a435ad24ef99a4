import { expect, test } from "bun:test";
import { hashToken } from "../src/credential/token.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { parseNewTodo } from "../src/todo.ts";
import { exchange, KEY_ID, mutant, VALID_REQUESTS } from "./fuzzer.ts";
import { capturingLog } from "./log.ts";
import { pathIn, startService } from "./service.ts";
import { watch } from "./store.ts";
import { until } from "./until.ts";

const REQUESTS = 10_000;
const AT_ONCE = 32;
const SECONDS = 300;

/** Any 5xx except 505, which the listener sends for HTTP/2.0 and similar versions. */
const SERVER_ERROR = /HTTP\/1\.[01] 5(?!05)\d\d /;

/** Set FUZZ_SEED to repeat a run. Each request has its own seed. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));

test(
  `${REQUESTS} mutated requests cause no 5xx, no timeout and no damage`,
  async () => {
    const { log, lines } = capturingLog();
    const memory = openMemory();
    const tokenHash = hashToken("deploy");
    /** Inserts the key that requests rotate. A mutated request can delete it, such as DELETE /admin/keys/ID?/rotate. */
    const insertKey = async (name: string): Promise<void> => {
      if ((await memory.keys.find(tokenHash)) === undefined)
        await memory.keys.insert({ id: KEY_ID, name, tokenHash, scope: "write", createdAt: 0 });
    };
    await insertKey("deploy");
    const watched = watch(memory);
    await using service = startService({
      store: watched.store,
      credentials: {
        keys: memory.keys,
        lookupClient: (token) => (token === "token" ? { name: "client" } : undefined),
        checkUser: (user, password) => user === "admin" && password === "password",
      },
      network: { onLoopback: true },
      accessLog: true,
      log: { ...log, info() {}, warn() {} },
    });
    for (const bytes of VALID_REQUESTS) {
      expect((await exchange(service.port, { bytes, isWhole: true })).text).toMatch(/^HTTP\/1\.1 [234]\d\d /);
    }
    Bun.gc(true);
    const before = process.memoryUsage.rss();

    const statuses = new Map<string, number>();
    let next = 0;
    const work = async (): Promise<void> => {
      while (next < REQUESTS) {
        const seed = SEED + next++;
        const sent = mutant(seed);
        const { text, isHung } = await exchange(service.port, sent);
        await insertKey(`deploy ${next}`);
        const status = /^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1] ?? "none";
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (isHung || SERVER_ERROR.test(text) || lines.length > 0) {
          const what = isHung ? "hung" : text.slice(0, 500);
          const bytes = JSON.stringify(sent.bytes.slice(0, 2000));
          throw new Error(`FUZZ_SEED=${seed} ${what}: ${JSON.stringify(lines)} after ${bytes}`);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));

    // A fuzzer whose requests all fail in the same way tests nothing.
    for (const status of [
      "200",
      "201",
      "204",
      "400",
      "401",
      "404",
      "405",
      "409",
      "413",
      "415",
      "422",
      "none",
    ]) {
      expect([status, (statuses.get(status) ?? 0) > 0]).toEqual([status, true]);
    }
    expect(watched.opened()).toBeGreaterThan(REQUESTS / 100);
    await until(() => watched.open() === 0, "every event stream is closed");
    expect((await memory.keys.list()).length).toBeGreaterThan(REQUESTS / 100);
    const created = await service.sendJson("POST", "/api/todos", { title: "after all" });
    expect(created.status).toBe(201);
    const location = pathIn(created.headers.get("location"), created) ?? "";
    expect(await (await service.send("GET", location)).json()).toMatchObject({ title: "after all" });
    const todos: unknown[] = JSON.parse(await (await service.send("GET", "/api/todos")).text());
    for (const todo of todos) parseNewTodo(todo);
    Bun.gc(true);
    expect((process.memoryUsage.rss() - before) / 2 ** 20).toBeLessThan(150);
  },
  SECONDS * 1000,
);
