import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { randomInt } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createClientLookup } from "../src/credential/client.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { runTodo } from "./command.ts";
import { basic } from "./credentials.ts";
import { Connection, statusOf } from "./raw-http.ts";
import { temporaryFolder } from "./temporary.ts";

/** Two kinds of guesses that should take the same time. */
type Kind = "early" | "late";

const TRIALS = 100_000;
/** Without a difference, Welch's t exceeds this with a probability of 1 in 10,000. */
const T_SIGNIFICANT = 3.9;
/** The t that an ordinary comparison must reach, which proves that the measurement works. */
const T_PLANTED = 40;
const HTTP_TRIALS = 12_000;
/** The number of trials that each cost a password hash, which waits for all other threads on a busy machine. */
const SLOW_TRIALS = 1500;
const T_HTTP = 5;
/** A leak shows in every repetition, because it is in the code. Noise from other programs does not. */
const REPETITIONS = 3;
/** The slowest tenth is noise of the garbage collector and the scheduler, so both kinds lose it at the same limit. */
const KEPT = 0.9;
// Password hashes have a low priority: on a busy machine, 1,500 of them take minutes.
setDefaultTimeout(900_000);

/** Makes a guess, and a function that returns how long its check takes. */
type Measure = (kind: Kind) => () => number | Promise<number>;

/** The t of Welch, positive if the late kind takes longer, and the ratio of the mean times. */
interface Comparison {
  readonly t: number;
  readonly ratio: number;
}

/** Compares how long checks of both kinds take, in random order. */
async function compare(measure: Measure, count: number): Promise<Comparison> {
  // All guesses are made beforehand, so that the time is that of the check alone.
  const trials = Array.from({ length: count + count / 5 }, () => {
    const kind: Kind = randomInt(2) === 0 ? "early" : "late";
    return { kind, run: measure(kind), time: 0 };
  });
  for (const trial of trials) {
    const time = trial.run();
    trial.time = typeof time === "number" ? time : await time;
  }
  const warm = trials.slice(-count);
  const most = Float64Array.from(warm, ({ time }) => time).sort()[Math.floor(count * KEPT)] ?? 0;
  const [early, late] = (["early", "late"] as const).map((wanted) =>
    moments(warm.flatMap(({ kind, time }) => (kind === wanted && time <= most ? [time] : []))),
  );
  if (early === undefined || late === undefined) throw new Error("two kinds are needed");
  const error = Math.sqrt(late.variance / late.count + early.variance / early.count);
  return { t: (late.mean - early.mean) / error, ratio: late.mean / early.mean };
}

function moments(times: readonly number[]) {
  const count = times.length;
  const mean = times.reduce((sum, time) => sum + time, 0) / count;
  return { count, mean, variance: times.reduce((sum, time) => sum + (time - mean) ** 2, 0) / (count - 1) };
}

/** Returns whether at least one repetition shows no difference. */
async function passesOnce(
  measure: Measure,
  isAlike: (comparison: Comparison) => boolean,
  count = TRIALS,
): Promise<boolean> {
  for (let repetition = 0; repetition < REPETITIONS; repetition++)
    if (isAlike(await compare(measure, count))) return true;
  return false;
}

/** Returns a guess that is wrong in its first or in its last character. */
function wrongAt(kind: Kind, secret: string): string {
  const at = kind === "early" ? 0 : secret.length - 1;
  let other = secret.charAt(at);
  while (other === secret.charAt(at)) other = randomBase62(1);
  return copy(secret.slice(0, at) + other + secret.slice(at + 1));
}

/** Returns a copy in memory of its own, because a concatenated string is built only when it is first read. */
const copy = (text: string): string => Buffer.from(text).toString();

const isInsignificant = ({ t }: Comparison): boolean => Math.abs(t) < T_SIGNIFICANT;

/** Measures a check in this process. */
function measured(check: (...guess: string[]) => unknown, guessOf: (kind: Kind) => string[]): Measure {
  return (kind) => {
    const guess = guessOf(kind);
    return () => {
      const started = Bun.nanoseconds();
      check(...guess);
      return Bun.nanoseconds() - started;
    };
  };
}

const [USER, PASSWORD] = [mintToken(), mintToken()];
const checkFixed = createFixedUserCheck(USER, PASSWORD);
// Many tokens, so that the position of a digest in the hash table does not matter.
const TOKENS = Array.from({ length: 1000 }, mintToken);
const lookup = createClientLookup(
  TOKENS.map((token) => ({ client: { name: "a" }, tokenHash: hashToken(token) })),
);
const SHORT_AND_LONG = {
  early: createFixedUserCheck(USER, "x"),
  late: createFixedUserCheck(USER, "x".repeat(1000)),
};

test("tokens are compared in constant time", async () => {
  const measure = measured(lookup, (kind) => [wrongAt(kind, TOKENS[randomInt(TOKENS.length)] ?? "")]);
  expect(await passesOnce(measure, isInsignificant)).toBe(true);
});

describe("the fixed user and password are compared in constant time", () => {
  test.each<[what: string, measure: Measure]>([
    ["the wrong character of a password", measured(checkFixed, (kind) => [USER, wrongAt(kind, PASSWORD)])],
    ["the wrong character of a user name", measured(checkFixed, (kind) => [wrongAt(kind, USER), PASSWORD])],
    ["the length of a password", (kind) => measured(SHORT_AND_LONG[kind], () => [USER, PASSWORD])(kind)],
  ])("for any value of %s", async (_what, measure) => {
    expect(await passesOnce(measure, isInsignificant)).toBe(true);
  });

  test("for a wrong user and for a wrong password", async () => {
    const measure = measured(checkFixed, (kind) =>
      kind === "early" ? [wrongAt("late", USER), copy(PASSWORD)] : [copy(USER), wrongAt("late", PASSWORD)],
    );
    // A short circuit would save a digest, which is a third of the time. Branch prediction matters much less.
    expect(await passesOnce(measure, ({ ratio }) => Math.abs(ratio - 1) < 0.1)).toBe(true);
  });
});

test("the test detects an ordinary comparison", async () => {
  const check = (tried = ""): boolean => {
    for (let at = 0; at < PASSWORD.length; at++)
      if (tried.charCodeAt(at) !== PASSWORD.charCodeAt(at)) return false;
    return tried.length === PASSWORD.length;
  };
  const measure = measured(check, (kind) => [wrongAt(kind, PASSWORD)]);
  expect(await passesOnce(measure, ({ t }) => t < T_PLANTED)).toBe(false);
});

describe("over HTTP", () => {
  const folder = temporaryFolder();
  const file = async (name: string, text: string): Promise<string> => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const user = (kind: Kind): string =>
    basic(kind === "early" ? USER : randomBase62(USER.length), mintToken());
  const password = (kind: Kind): string => basic(USER, wrongAt(kind, PASSWORD));
  const isAlike = ({ t }: Comparison): boolean => Math.abs(t) < T_HTTP;

  /** Starts a server that rejects any number of guesses without a delay. */
  async function serve(settings: Readonly<Record<string, string>>) {
    const server = runTodo(["serve", "--port", "0"], { TODO_BASIC_FAILURES: "0", ...settings });
    const url = await server.url;
    const open = () => Connection.open(Number(new URL(url).port));
    return { ...server, url, open };
  }

  /** Measures how long a server takes to reject a guess. */
  const rejected =
    (connection: Connection, path: string, guess: (kind: Kind) => string): Measure =>
    (kind) => {
      const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${guess(kind)}\r\n\r\n`;
      return async () => {
        const started = Bun.nanoseconds();
        const answer = await connection.exchange(request);
        const time = Bun.nanoseconds() - started;
        if (answer === undefined || statusOf(answer) !== 401) throw new Error(`expected 401, got ${answer}`);
        return time;
      };
    };

  test.each<[what: string, guess: (kind: Kind) => string]>([
    ["at which character a password of the users file is wrong", password],
    ["whether the users file has the user", user],
  ])("response times do not reveal %s", async (_what, guess) => {
    const hash = await Bun.password.hash(PASSWORD, { algorithm: "bcrypt", cost: 4 });
    const users = await file("users", `first:${hash}\n${USER}:${hash}\n`);
    await using server = await serve({ TODO_USERS_FILE: users });
    using connection = await server.open();
    expect(await passesOnce(rejected(connection, "/admin/", guess), isAlike, SLOW_TRIALS)).toBe(true);
  });

  test("response times do not reveal at which character the token of a stored key is wrong", async () => {
    await using server = await serve({ TODO_ADMIN_USER: USER, TODO_ADMIN_PASSWORD: PASSWORD });
    const headers = { Authorization: basic(USER, PASSWORD), "Content-Type": "application/json" };
    const made = await fetch(`${server.url}/admin/keys`, { method: "POST", headers, body: '{"name":"a"}' });
    const { token }: { readonly token: string } = JSON.parse(await made.text());
    using connection = await server.open();
    const measure = rejected(connection, "/api/whoami", (kind) => `Bearer ${wrongAt(kind, token)}`);
    expect(await passesOnce(measure, isAlike, HTTP_TRIALS)).toBe(true);
  });

  test("the test detects users that are rejected without a password hash", async () => {
    const module = `export const checkUser = async (user) => {
      if (user === ${JSON.stringify(USER)}) await Bun.password.hash("x", { algorithm: "bcrypt", cost: 4 });
      return false;
    };`;
    await using server = await serve({ TODO_AUTH_MODULE: await file("telling.ts", module) });
    using connection = await server.open();
    const measure = rejected(connection, "/admin/", user);
    // A busy machine can hide the difference for a while.
    while (isAlike(await compare(measure, SLOW_TRIALS)));
  });
});
