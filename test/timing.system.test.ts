import { describe, expect, test } from "bun:test";
import { randomInt } from "node:crypto";
import { createClientLookup } from "../src/credential/client.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { type Comparison, compareTimes, type Kind } from "./welch.ts";

const TRIALS = 100_000;
const WARM_UP = 20_000;
/** Welch's t beyond this has a chance of one in ten thousand where there is no difference. */
const T_SIGNIFICANT = 3.9;
/** A leak is in the code, and shows each time; what the machine is busy with does not. */
const REPETITIONS = 3;
/** What a leak in an ordinary comparison must reach, so that the measure is known to work. */
const T_PLANTED = 40;

/** What checks guesses, and the guesses of two kinds that it should take the same time for. */
interface Subject<Guess> {
  readonly guess: (kind: Kind) => Guess;
  readonly run: (guess: Guess) => unknown;
}

/** Compares the times that guesses of both kinds take, in random order. */
function compare<Guess>({ guess, run }: Subject<Guess>): Comparison {
  // All made beforehand, so that nothing but the run is in the time.
  const trials = Array.from({ length: WARM_UP + TRIALS }, () => {
    const kind: Kind = randomInt(2) === 0 ? "early" : "late";
    return { kind, guess: guess(kind) };
  });
  const times = new Float64Array(trials.length);
  for (const [index, trial] of trials.entries()) {
    const started = Bun.nanoseconds();
    run(trial.guess);
    times[index] = Bun.nanoseconds() - started;
  }
  return compareTimes(trials.map(({ kind }, index) => ({ kind, time: times[index] ?? 0 })).slice(WARM_UP));
}

/** Whether some repetition shows no difference. */
function passesOnce<Guess>(subject: Subject<Guess>, alike: (comparison: Comparison) => boolean): boolean {
  return Array.from({ length: REPETITIONS }).some(() => alike(compare(subject)));
}

/** A guess that is wrong in its first character, or in its last. */
function wrongAt(kind: Kind, secret: string): string {
  const at = kind === "early" ? 0 : secret.length - 1;
  let other = secret.charAt(at);
  while (other === secret.charAt(at)) other = randomBase62(1);
  return copy(secret.slice(0, at) + other + secret.slice(at + 1));
}

/** A string of its own: one that was joined would be put together only when it is first read. */
function copy(text: string): string {
  return Buffer.from(text).toString();
}

const insignificant = ({ t }: Comparison): boolean => Math.abs(t) < T_SIGNIFICANT;

test("tokens are compared in constant time", () => {
  // Many, so that it does not matter which slot of the table a digest has.
  const tokens = Array.from({ length: 1000 }, mintToken);
  const lookup = createClientLookup(
    tokens.map((token) => ({ client: { name: "a" }, tokenHash: hashToken(token) })),
  );
  const guess = (kind: Kind): string => wrongAt(kind, tokens[randomInt(tokens.length)] ?? "");
  expect(passesOnce({ guess, run: lookup }, insignificant)).toBe(true);
});

describe("a fixed pair is compared in constant time", () => {
  const secret = mintToken();
  const user = mintToken();

  test("wherever the password is wrong", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): string => wrongAt(kind, secret);
    expect(passesOnce({ guess, run: (password) => check(user, password) }, insignificant)).toBe(true);
  });

  test("wherever the user is wrong", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): string => wrongAt(kind, user);
    expect(passesOnce({ guess, run: (wrong) => check(wrong, secret) }, insignificant)).toBe(true);
  });

  test("whether the password is short or long", () => {
    const checks = {
      early: createFixedUserCheck(user, "x"),
      late: createFixedUserCheck(user, "x".repeat(1000)),
    };
    const guess = (kind: Kind) => checks[kind];
    expect(passesOnce({ guess, run: (check) => check(user, secret) }, insignificant)).toBe(true);
  });

  test("whether the user or the password is wrong", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): readonly [user: string, password: string] => {
      const wrong = [wrongAt("late", user), copy(secret)] as const;
      const right = [copy(user), wrongAt("late", secret)] as const;
      return kind === "early" ? wrong : right;
    };
    const run = ([triedUser, password]: readonly [string, string]) => check(triedUser, password);
    // A short circuit would save a digest, some third of it all; what the processor foresees is far less.
    expect(passesOnce({ guess, run }, ({ ratio }) => Math.abs(ratio - 1) < 0.1)).toBe(true);
  });
});

test("an ordinary comparison would be caught", () => {
  const secret = mintToken();
  const guess = (kind: Kind): string => wrongAt(kind, secret);
  const run = (tried: string): boolean => {
    for (let at = 0; at < secret.length; at++) {
      if (tried.charCodeAt(at) !== secret.charCodeAt(at)) return false;
    }
    return tried.length === secret.length;
  };
  expect(passesOnce({ guess, run }, ({ t }) => t < T_PLANTED)).toBe(false);
});
