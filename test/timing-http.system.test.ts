import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomInt } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { type Command, runTodo } from "./command.ts";
import { basic } from "./flood.ts";
import { type Comparison, compareTimes, type Kind } from "./welch.ts";

const TRIALS = 12_000;
const WARM_UP = 2000;
/** Each of these costs a password hash, which waits for all other threads on a busy machine. */
const SLOW_TRIALS = 1500;
const SLOW_WARM_UP = 200;
const LIMIT_MS = 900_000;
const T_MOST = 5;
/** A leak is in the code, and shows each time; what the machine is busy with does not. */
const REPETITIONS = 3;

const TOKEN = mintToken();
const USER = "administrator";
const PASSWORD = mintToken();
/** How the leaking module takes some tenth of a millisecond more for a guess whose last character alone is wrong. */
const LEAKING = `
  import { hash } from "node:crypto";
  const leaks = (guess, secret) => {
    for (let at = 0; at < secret.length; at++) {
      const [one, other] = [guess, secret].map((text) => hash("sha256", text.charAt(at).repeat(2000)));
      if (one !== other) return false;
    }
    return guess.length === secret.length;
  };
  export const lookupClient = async (token) => (leaks(token, ${JSON.stringify(TOKEN)}) ? { name: "a" } : undefined);
  export const checkUser = async (user, password) => leaks(password, ${JSON.stringify(PASSWORD)});
`;

/** One kept-alive connection. */
class Connection implements Disposable {
  readonly #socket: Socket;
  #answered: PromiseWithResolvers<number> | undefined;

  constructor(port: number) {
    this.#socket = connect(port, "127.0.0.1");
    this.#socket.setNoDelay(true);
    // A refusal comes in one piece.
    this.#socket.on("data", (chunk) => {
      this.#answered?.resolve(Number(chunk.toString("latin1", 9, 12)));
    });
    this.#socket.on("close", () => this.#answered?.reject(new Error("the server closed the connection")));
  }

  ask(request: string): Promise<number> {
    this.#answered = Promise.withResolvers();
    this.#socket.write(request);
    return this.#answered.promise;
  }

  [Symbol.dispose](): void {
    this.#answered = undefined;
    this.#socket.destroy();
  }
}

/** Compares how long a server takes to refuse guesses of both kinds, in random order. */
async function compare(
  port: number,
  path: string,
  guess: (kind: Kind) => string,
  trials: number,
): Promise<Comparison> {
  using connection = new Connection(port);
  const times: { kind: Kind; time: number }[] = [];
  for (let trial = 0; trial < trials + (trials === SLOW_TRIALS ? SLOW_WARM_UP : WARM_UP); trial++) {
    const kind: Kind = randomInt(2) === 0 ? "early" : "late";
    const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${guess(kind)}\r\n\r\n`;
    const started = Bun.nanoseconds();
    const status = await connection.ask(request);
    times.push({ kind, time: Bun.nanoseconds() - started });
    if (status !== 401) throw new Error(`a guess was answered with ${status}`);
  }
  return compareTimes(times.slice(-trials));
}

/** Welch's t of the repetition that shows the least difference. */
async function leastT(...asked: Parameters<typeof compare>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let repetition = 0; repetition < REPETITIONS && least >= T_MOST; repetition++) {
    least = Math.min(least, Math.abs((await compare(...asked)).t));
  }
  return least;
}

/** A guess that is wrong in its first character, or in its last. */
function wrongAt(kind: Kind, secret: string): string {
  const at = kind === "early" ? 0 : secret.length - 1;
  let other = secret.charAt(at);
  while (other === secret.charAt(at)) other = randomBase62(1);
  return secret.slice(0, at) + other + secret.slice(at + 1);
}

const bearer = (kind: Kind): string => `Bearer ${wrongAt(kind, TOKEN)}`;
const password = (kind: Kind): string => basic(USER, wrongAt(kind, PASSWORD));
/** Some user of the same length who is known, or not. */
const user = (kind: Kind): string => basic(kind === "early" ? USER : randomBase62(USER.length), mintToken());

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "todo-timing-"));
});
afterAll(() => rm(folder, { recursive: true }));

async function file(name: string, text: string): Promise<string> {
  await writeFile(join(folder, name), text);
  return join(folder, name);
}

/** A server that refuses guesses without end, and at once. */
async function serve(settings: Readonly<Record<string, string>>): Promise<{ server: Command; port: number }> {
  const server = runTodo(["serve", "--port", "0"], { TODO_BASIC_FAILURES: "0", ...settings });
  return { server, port: Number(new URL(await server.url).port) };
}

describe("over HTTP", () => {
  const pair = { TODO_ADMIN_USER: USER, TODO_ADMIN_PASSWORD: PASSWORD };
  const clients = async () => ({
    TODO_CLIENTS_FILE: await file("clients", `a:${Buffer.from(hashToken(TOKEN)).toString("hex")}\n`),
  });
  const users = async () => {
    const hash = await Bun.password.hash(PASSWORD, { algorithm: "bcrypt", cost: 4 });
    return { TODO_USERS_FILE: await file("users", `first:${hash}\n${USER}:${hash}\n`) };
  };
  type Row = [
    what: string,
    settings: () => Promise<Record<string, string>>,
    path: string,
    guess: (kind: Kind) => string,
    trials: number,
  ];

  test.each<Row>([
    ["where a token of the clients file is wrong", clients, "/api/whoami", bearer, TRIALS],
    ["where the fixed password is wrong", async () => pair, "/admin/", password, TRIALS],
    ["whether the fixed user is known", async () => pair, "/admin/", user, TRIALS],
    ["where a password of the users file is wrong", users, "/admin/", password, SLOW_TRIALS],
    ["whether a user of the users file is known", users, "/admin/", user, SLOW_TRIALS],
  ])(
    "time does not tell %s",
    async (_what, settings, path, guess, trials) => {
      const { server, port } = await serve(await settings());
      await using _ = server;
      expect(await leastT(port, path, guess, trials)).toBeLessThan(T_MOST);
    },
    LIMIT_MS,
  );

  test("time does not tell where a token of a stored key is wrong", async () => {
    const { server, port } = await serve(pair);
    await using _ = server;
    const headers = { Authorization: basic(USER, PASSWORD), "Content-Type": "application/json" };
    const url = `http://127.0.0.1:${port}/admin/keys`;
    const made = await fetch(url, { method: "POST", headers, body: '{"name":"a"}' });
    const { token }: { readonly token: string } = JSON.parse(await made.text());
    const guess = (kind: Kind): string => `Bearer ${wrongAt(kind, token)}`;
    expect(await leastT(port, "/api/whoami", guess, TRIALS)).toBeLessThan(T_MOST);
  });

  test.each<[what: string, path: string, guess: (kind: Kind) => string]>([
    ["token", "/api/whoami", bearer],
    ["password", "/admin/", password],
  ])(
    "time would tell where a %s is wrong that is compared character by character",
    async (_what, path, guess) => {
      const { server, port } = await serve({ TODO_AUTH_MODULE: await file("leaking.ts", LEAKING) });
      await using _ = server;
      expect(await leastT(port, path, guess, SLOW_TRIALS)).toBeGreaterThan(T_MOST);
    },
  );

  test("time would tell a user who costs no hash", async () => {
    const module = `export const checkUser = async (user) => {
      if (user === ${JSON.stringify(USER)}) await Bun.password.hash("x", { algorithm: "bcrypt", cost: 4 });
      return false;
    };`;
    const { server, port } = await serve({ TODO_AUTH_MODULE: await file("telling.ts", module) });
    await using _ = server;
    expect(await leastT(port, "/admin/", user, SLOW_TRIALS)).toBeGreaterThan(T_MOST);
  });
});
