import { describe, expect, test } from "bun:test";
import { randomInt } from "node:crypto";
import { createClientLookup } from "../src/credential/client.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import { type Comparison, compareTimes, type Kind } from "./welch.ts";

const TRIALS = 100_000;
const WARM_UP = 20_000;
/** Without a difference, Welch's t exceeds this with a probability of 1 in 10,000. */
const T_SIGNIFICANT = 3.9;
/** A leak shows in every repetition, because it is in the code. Noise from other programs does not. */
const REPETITIONS = 3;
/** The t that an ordinary comparison must reach, which proves that the measurement works. */
const T_PLANTED = 40;

/** A check, and guesses of two kinds for which it should take the same time. */
interface Subject<Guess> {
  readonly guess: (kind: Kind) => Guess;
  readonly run: (guess: Guess) => unknown;
}

/** Compares how long a check takes for guesses of both kinds, in random order. */
function compare<Guess>({ guess, run }: Subject<Guess>): Comparison {
  // All guesses are made beforehand, so that the time is that of the check alone.
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

/** Returns whether at least one repetition shows no difference. */
function passesOnce<Guess>(subject: Subject<Guess>, alike: (comparison: Comparison) => boolean): boolean {
  return Array.from({ length: REPETITIONS }).some(() => alike(compare(subject)));
}

/** Returns a guess that is wrong in its first or in its last character. */
function wrongAt(kind: Kind, secret: string): string {
  const at = kind === "early" ? 0 : secret.length - 1;
  let other = secret.charAt(at);
  while (other === secret.charAt(at)) other = randomBase62(1);
  return copy(secret.slice(0, at) + other + secret.slice(at + 1));
}

/** Returns a copy in memory of its own, because a concatenated string is built only when it is first read. */
function copy(text: string): string {
  return Buffer.from(text).toString();
}

const insignificant = ({ t }: Comparison): boolean => Math.abs(t) < T_SIGNIFICANT;

test("tokens are compared in constant time", () => {
  // Many tokens, so that the position of a digest in the hash table does not matter.
  const tokens = Array.from({ length: 1000 }, mintToken);
  const lookup = createClientLookup(
    tokens.map((token) => ({ client: { name: "a" }, tokenHash: hashToken(token) })),
  );
  const guess = (kind: Kind): string => wrongAt(kind, tokens[randomInt(tokens.length)] ?? "");
  expect(passesOnce({ guess, run: lookup }, insignificant)).toBe(true);
});

describe("the fixed user and password are compared in constant time", () => {
  const secret = mintToken();
  const user = mintToken();

  test("for any position of the wrong character in the password", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): string => wrongAt(kind, secret);
    expect(passesOnce({ guess, run: (password) => check(user, password) }, insignificant)).toBe(true);
  });

  test("for any position of the wrong character in the user name", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): string => wrongAt(kind, user);
    expect(passesOnce({ guess, run: (wrong) => check(wrong, secret) }, insignificant)).toBe(true);
  });

  test("for short and long passwords", () => {
    const checks = {
      early: createFixedUserCheck(user, "x"),
      late: createFixedUserCheck(user, "x".repeat(1000)),
    };
    const guess = (kind: Kind) => checks[kind];
    expect(passesOnce({ guess, run: (check) => check(user, secret) }, insignificant)).toBe(true);
  });

  test("for a wrong user and for a wrong password", () => {
    const check = createFixedUserCheck(user, secret);
    const guess = (kind: Kind): readonly [user: string, password: string] => {
      const wrong = [wrongAt("late", user), copy(secret)] as const;
      const right = [copy(user), wrongAt("late", secret)] as const;
      return kind === "early" ? wrong : right;
    };
    const run = ([triedUser, password]: readonly [string, string]) => check(triedUser, password);
    // A short circuit would save a digest, which is a third of the time. Branch prediction matters much less.
    expect(passesOnce({ guess, run }, ({ ratio }) => Math.abs(ratio - 1) < 0.1)).toBe(true);
  });
});

test("the test detects an ordinary comparison", () => {
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
