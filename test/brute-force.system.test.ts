import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run, runTodo } from "./command.ts";
import { basic, flood } from "./flood.ts";
import { residentMiB } from "./memory.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

/** More of them take longer: five hundred a second are refused. */
const GUESSES = Number(process.env.TODO_TEST_GUESSES ?? 1000);
const CONNECTIONS = 16;
const MOST = 100;
const USER = "root";
const PASSWORD = "s3cret";
const RIGHT = basic(USER, PASSWORD);

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "todo-guesses-"));
});
afterAll(() => rm(folder, { recursive: true }));

/** A file in the test's folder. */
async function file(name: string, text: string): Promise<string> {
  await writeFile(join(folder, name), text);
  return join(folder, name);
}

async function usersFile(users: readonly string[], cost: number): Promise<string> {
  const hash = await Bun.password.hash(PASSWORD, { algorithm: "bcrypt", cost });
  return file(`users-${cost}`, users.map((user) => `${user}:${hash}\n`).join(""));
}

/** A module that writes down each check: what it counts is what was evaluated. */
const countingModule = (count: string): Promise<string> =>
  file(
    "module.ts",
    `import { appendFileSync } from "node:fs";
     export async function checkUser(user, password) {
       appendFileSync(${JSON.stringify(count)}, ".");
       return user === ${JSON.stringify(USER)} && password === ${JSON.stringify(PASSWORD)};
     }`,
  );

async function serve(settings: Readonly<Record<string, string>>) {
  const server = runTodo(["serve", "--port", "0"], settings);
  const url = await server.url;
  return Object.assign(server, { port: Number(new URL(url).port) });
}

/** The status for a password that comes from another address of this machine. */
function statusFrom(localAddress: string, port: number, authorization: string): Promise<number | undefined> {
  const options = { host: "127.0.0.1", port, path: "/admin/", localAddress };
  return new Promise((resolve, reject) => {
    request({ ...options, headers: { Authorization: authorization }, agent: false }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    })
      .on("error", reject)
      .end();
  });
}

/** Repeats a request until it is answered. On a busy machine a password may wait longer than an idle connection lasts. */
async function answered(ask: () => Promise<number | undefined>): Promise<number | undefined> {
  while (true) {
    const status = await ask().catch(() => undefined);
    if (status !== undefined) return status;
  }
}

/** Guesses that are all different, of which the last is right. */
function guesses(count: number): () => string | undefined {
  let made = 0;
  return () => {
    if (made === count) return undefined;
    made++;
    return made === count ? RIGHT : basic(USER, `wrong ${made}`);
  };
}

describe(`of ${GUESSES} guesses over ${CONNECTIONS} connections, 100 are looked at`, () => {
  const sources: [what: string, settings: () => Promise<Record<string, string>>][] = [
    ["a fixed pair", async () => ({ TODO_ADMIN_USER: USER, TODO_ADMIN_PASSWORD: PASSWORD })],
    ["a users file", async () => ({ TODO_USERS_FILE: await usersFile([USER], 4) })],
    ["a module", async () => ({ TODO_AUTH_MODULE: await countingModule(join(folder, "count")) })],
  ];
  test.each(sources)("with %s, and its owner is let in elsewhere", async (what, settings) => {
    await using server = await serve(await settings());
    const { port } = server;
    const answers = await flood({ port, connections: CONNECTIONS, next: guesses(GUESSES) });
    expect(answers).toEqual({ 401: MOST, 429: GUESSES - MOST });
    if (what === "a module") expect((await readFile(join(folder, "count"))).length).toBe(MOST);
    expect(await statusFrom("127.0.0.1", port, RIGHT)).toBe(429);
    expect(await statusFrom("127.0.0.2", port, RIGHT)).toBe(200);
  });

  test("but of tokens, for which each is a 401", async () => {
    await using server = await serve({ TODO_AUTH_MODULE: await countingModule(join(folder, "unused")) });
    let made = 0;
    const next = () => (made++ < GUESSES ? `Bearer wrong${made}` : undefined);
    const { port } = server;
    const answers = await flood({ port, connections: CONNECTIONS, next, path: "/api/whoami" });
    expect(answers).toEqual({ 401: GUESSES });
  });
});

test.skipIf(skipFor(whyMissing("hydra")))(
  "hydra finds a password among the first hundred, and none behind them",
  async () => {
    const settings = { TODO_ADMIN_USER: USER, TODO_ADMIN_PASSWORD: PASSWORD };
    const found = async (at: number): Promise<boolean> => {
      await using server = await serve(settings);
      const list = Array.from({ length: 400 }, (_, index) => (index === at ? PASSWORD : `wrong${index}`));
      const passwords = await file(`list-${at}`, `${list.join("\n")}\n`);
      const target = ["-s", String(server.port), "127.0.0.1", "http-get", "/admin/"];
      const hydra = run(["hydra", "-l", USER, "-P", passwords, "-t", "16", "-I", "-f", ...target], {
        HOME: folder,
      });
      await hydra.exited;
      if (!hydra.stdout().includes("Hydra")) throw new Error(hydra.stderr());
      return hydra.stdout().includes(`password: ${PASSWORD}`);
    };
    expect([await found(20), await found(300)]).toEqual([true, false]);
  },
);

describe("200 connections that guess", () => {
  const ROUNDS = 2;
  const LOAD_MS = 1500;
  /** Without a guard it was 60 to 190 times, with it one to three on two cores, which the load shares; see the bench. */
  const SLOWER_MOST = 20;

  /** The 99th percentile of the milliseconds that to-dos take to be read, over eight connections. */
  async function p99(port: number): Promise<number> {
    const times: number[] = [];
    const end = performance.now() + LOAD_MS;
    const read = async (): Promise<void> => {
      while (performance.now() < end) {
        const started = performance.now();
        await (await fetch(`http://127.0.0.1:${port}/api/todos`)).arrayBuffer();
        times.push(performance.now() - started);
        await Bun.sleep(2);
      }
    };
    await Promise.all(Array.from({ length: 8 }, read));
    return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)] ?? 0;
  }

  test.each<[what: string, users: number]>([
    ["one user's password", 1],
    ["the passwords of ever new users", 1_000_000],
  ])("%s slow nobody down, and keep nobody out for ever", async (_what, users) => {
    await using server = await serve({ TODO_USERS_FILE: await usersFile(["user0", USER], 10) });
    const { port, pid } = server;
    await p99(port);
    const before = await residentMiB(pid);
    const [calm, flooded, grown]: [number[], number[], number[]] = [[], [], []];
    for (let round = 0; round < ROUNDS; round++) {
      calm.push(await p99(port));
      const parts = ["test/flood.ts", port, 200, LOAD_MS + 1500, users].map(String);
      await using guessing = run([process.execPath, "--no-env-file", ...parts]);
      await Bun.sleep(500);
      flooded.push(await p99(port));
      grown.push((await residentMiB(pid)) - before);
      // From another network, in its turn; and then remembered.
      if (round === 0) {
        expect(await answered(() => statusFrom("127.0.0.2", port, RIGHT))).toBe(200);
        expect(await statusFrom("127.0.0.2", port, RIGHT)).toBe(200);
      }
      expect(await guessing.exited).toBe(0);
      const answers: Record<string, number> = JSON.parse(guessing.stdout());
      expect(Object.values(answers).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(100);
    }
    process.stderr.write(
      `p99 ${Math.min(...flooded).toFixed(2)} ms beside guesses, ${Math.min(...calm).toFixed(2)} without; ` +
        `${Math.max(...grown).toFixed(0)} MiB more\n`,
    );
    expect(Math.min(...flooded) / Math.min(...calm)).toBeLessThan(SLOWER_MOST);
    expect(Math.max(...grown)).toBeLessThan(300);
  });
});
