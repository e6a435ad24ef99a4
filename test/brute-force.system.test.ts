import { describe, expect, test } from "bun:test";
import { request } from "node:http";
import { run } from "./command.ts";
import { basic } from "./credentials.ts";
import { openDescriptors, residentMiB } from "./process-status.ts";
import { request as httpRequest, openSocket, statusOf } from "./raw-http.ts";
import { portOf, serve, stop } from "./server.ts";
import { filesIn } from "./temporary.ts";
import { until } from "./until.ts";

const newFile = filesIn();

const USER = "root";
const PASSWORD = "s3cret";
const RIGHT = basic(USER, PASSWORD);

async function usersFile(users: readonly string[], cost: number): Promise<string> {
  const hash = await Bun.password.hash(PASSWORD, { algorithm: "bcrypt", cost });
  return newFile(users.map((user) => `${user}:${hash}\n`).join(""));
}

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

/** Repeats a request until it is answered. On a busy machine, a password may wait longer than an idle connection lasts. */
async function answered(ask: () => Promise<number | undefined>): Promise<number | undefined> {
  while (true) {
    const status = await ask().catch(() => undefined);
    if (status !== undefined) return status;
  }
}

describe("200 connections that guess passwords", () => {
  /** Longer than the test, which ends the guesses. */
  const GUESSING_MS = 600_000;
  const CLIENTS = 8;
  const READS = 50;

  /** Reads the list over several connections. How long that takes beside guesses is measured in bench/. */
  async function readList(port: number): Promise<void> {
    const read = async (): Promise<void> => {
      for (let count = 0; count < READS; count++) {
        const response = await fetch(`http://127.0.0.1:${port}/api/todos`);
        expect([response.status, await response.text()]).toEqual([200, "[]"]);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, read));
  }

  test.each<[what: string, users: number]>([
    ["of one user", 1],
    ["of a new user in each request", 1_000_000],
  ])("%s: other clients get responses, and other networks can sign in", async (_what, users) => {
    await using server = serve([], { TODO_USERS_FILE: await usersFile(["user0", USER], 10) });
    const { pid } = server;
    const port = await portOf(server);
    await readList(port);
    const before = await residentMiB(pid);
    const parts = ["test/flood.ts", port, 200, GUESSING_MS, users].map(String);
    const connections = await openDescriptors(pid);
    await using guessing = run([process.execPath, "--no-env-file", ...parts]);
    await until(async () => (await openDescriptors(pid)) > connections + 150, "the guesses have connected");
    await readList(port);
    // From another network: the password is verified in its turn, and then cached.
    expect(await answered(() => statusFrom("127.0.0.2", port, RIGHT))).toBe(200);
    expect(await statusFrom("127.0.0.2", port, RIGHT)).toBe(200);
    await stop(guessing);
    const grown = (await residentMiB(pid)) - before;
    process.stderr.write(`${grown.toFixed(0)} MiB more\n`);
    expect(grown).toBeLessThan(300);
    const answers: Record<string, number> = JSON.parse(guessing.stdout());
    expect(Object.values(answers).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(100);
  });
});

test("3,000 unfinished bodies that wait for a password check use little memory, and another network can log in", async () => {
  await using server = serve([], { TODO_USERS_FILE: await usersFile([USER], 10) });
  const { pid } = server;
  const port = await portOf(server);
  const before = await residentMiB(pid);
  let peak = before;
  const headers = ["Content-Length: 131072", `Authorization: ${basic(USER, "wrong")}`];
  const bytes = httpRequest("POST /admin/keys", headers, " ".repeat(131_000));
  const statuses = new Map<number | undefined, number>();
  const sockets = await Promise.all(
    Array.from({ length: 3000 }, async () => {
      const socket = await openSocket(port, bytes);
      socket.once("data", (data) => {
        const status = statusOf(data.toString("latin1"));
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      });
      return socket;
    }),
  );
  const isRejected = async (): Promise<boolean> => {
    peak = Math.max(peak, await residentMiB(pid));
    return statuses.values().reduce((sum, count) => sum + count, 0) === sockets.length;
  };
  const rejected = until(isRejected, "each request has a response");
  expect(await answered(() => statusFrom("127.0.0.2", port, RIGHT))).toBe(200);
  await rejected;
  for (const socket of sockets) socket.destroy();
  // The first attempts are checked. While they are, an attempt beyond the limit gets 503; afterwards, it gets 429.
  const atLimit = (statuses.get(429) ?? 0) + (statuses.get(503) ?? 0);
  expect(atLimit).toBeGreaterThan(0);
  expect(atLimit + (statuses.get(401) ?? 0)).toBe(sockets.length);
  process.stderr.write(`${(peak - before).toFixed(0)} MiB more\n`);
  expect(peak - before).toBeLessThan(200);
});
