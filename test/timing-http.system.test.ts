import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { randomInt } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { type Command, runTodo } from "./command.ts";
import { basic } from "./flood.ts";
import { Connection, statusOf } from "./raw-http.ts";
import { temporaryFolder } from "./temporary.ts";
import { type Comparison, compareTimes, type Kind } from "./welch.ts";

const folder = temporaryFolder();

const TRIALS = 12_000;
const WARM_UP = 2000;
/** The number of trials that each cost a password hash, which waits for all other threads on a busy machine. */
const SLOW_TRIALS = 1500;
const SLOW_WARM_UP = 200;
// Password hashes have a low priority: on a busy machine, 1,500 of them take minutes.
setDefaultTimeout(900_000);
const T_MOST = 5;
/** A leak shows in every repetition, because it is in the code. Noise from other programs does not. */
const REPETITIONS = 3;

const TOKEN = mintToken();
const USER = "administrator";
const PASSWORD = mintToken();
/** A module whose checks take about 0.1 ms longer for a guess that is wrong only in its last character. */
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

/** Compares how long a server takes to reject guesses of both kinds, in random order. */
async function compare(
  port: number,
  path: string,
  guess: (kind: Kind) => string,
  trials: number,
): Promise<Comparison> {
  using connection = await Connection.open(port);
  const times: { kind: Kind; time: number }[] = [];
  for (let trial = 0; trial < trials + (trials === SLOW_TRIALS ? SLOW_WARM_UP : WARM_UP); trial++) {
    const kind: Kind = randomInt(2) === 0 ? "early" : "late";
    const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${guess(kind)}\r\n\r\n`;
    const started = Bun.nanoseconds();
    const answer = await connection.exchange(request);
    times.push({ kind, time: Bun.nanoseconds() - started });
    if (answer === undefined || statusOf(answer) !== 401)
      throw new Error(`expected 401 for a guess, got ${answer}`);
  }
  return compareTimes(times.slice(-trials));
}

/** Returns Welch's t of the repetition with the smallest difference. */
async function leastT(...asked: Parameters<typeof compare>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let repetition = 0; repetition < REPETITIONS && least >= T_MOST; repetition++) {
    least = Math.min(least, Math.abs((await compare(...asked)).t));
  }
  return least;
}

/** Measures until the difference shows, because a busy machine can hide it for a while. */
async function expectLeak(port: number, path: string, guess: (kind: Kind) => string): Promise<void> {
  while ((await leastT(port, path, guess, SLOW_TRIALS)) <= T_MOST);
}

/** Returns a guess that is wrong in its first or in its last character. */
function wrongAt(kind: Kind, secret: string): string {
  const at = kind === "early" ? 0 : secret.length - 1;
  let other = secret.charAt(at);
  while (other === secret.charAt(at)) other = randomBase62(1);
  return secret.slice(0, at) + other + secret.slice(at + 1);
}

const bearer = (kind: Kind): string => `Bearer ${wrongAt(kind, TOKEN)}`;
const password = (kind: Kind): string => basic(USER, wrongAt(kind, PASSWORD));
/** Returns credentials with a known or an unknown user name of the same length. */
const user = (kind: Kind): string => basic(kind === "early" ? USER : randomBase62(USER.length), mintToken());

async function file(name: string, text: string): Promise<string> {
  await writeFile(join(folder, name), text);
  return join(folder, name);
}

/** Starts a server that rejects any number of guesses without a delay. */
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
    ["at which character a token of the clients file is wrong", clients, "/api/whoami", bearer, TRIALS],
    ["at which character the fixed password is wrong", async () => pair, "/admin/", password, TRIALS],
    ["whether the user name is that of the fixed user", async () => pair, "/admin/", user, TRIALS],
    ["at which character a password of the users file is wrong", users, "/admin/", password, SLOW_TRIALS],
    ["whether the users file has the user", users, "/admin/", user, SLOW_TRIALS],
  ])("response times do not reveal %s", async (_what, settings, path, guess, trials) => {
    const { server, port } = await serve(await settings());
    await using _ = server;
    expect(await leastT(port, path, guess, trials)).toBeLessThan(T_MOST);
  });

  test("response times do not reveal at which character the token of a stored key is wrong", async () => {
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
  ])("the test detects a %s that is compared character by character", async (_what, path, guess) => {
    const { server, port } = await serve({ TODO_AUTH_MODULE: await file("leaking.ts", LEAKING) });
    await using _ = server;
    await expectLeak(port, path, guess);
  });

  test("the test detects users that are rejected without a password hash", async () => {
    const module = `export const checkUser = async (user) => {
      if (user === ${JSON.stringify(USER)}) await Bun.password.hash("x", { algorithm: "bcrypt", cost: 4 });
      return false;
    };`;
    const { server, port } = await serve({ TODO_AUTH_MODULE: await file("telling.ts", module) });
    await using _ = server;
    await expectLeak(port, "/admin/", user);
  });
});
