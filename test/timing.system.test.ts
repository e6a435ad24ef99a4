import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { randomInt } from "node:crypto";
import { createClientLookup } from "../src/credential/client.ts";
import { hashToken, mintToken, randomBase62 } from "../src/credential/token.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";

/** Two kinds of guesses that should take the same time. */
type Kind = "early" | "late";

const TRIALS = 100_000;
/** Without a difference, Welch's t exceeds this with a probability of 1 in 10,000. */
const T_SIGNIFICANT = 3.9;
/** The t that an ordinary comparison must reach, which proves that the measurement works. */
const T_PLANTED = 40;
/** A leak shows in every repetition, because it is in the code. Noise from other programs does not. */
const REPETITIONS = 3;
/** The slowest tenth is noise of the garbage collector and the scheduler, so both kinds lose it at the same limit. */
const KEPT = 0.9;
setDefaultTimeout(900_000);

/** Makes a guess, and a function that returns how long its check takes. */
type Measure = (kind: Kind) => () => number;

/** The t of Welch, positive if the late kind takes longer, and the ratio of the mean times. */
interface Comparison {
  readonly t: number;
  readonly ratio: number;
}

/** Compares how long checks of both kinds take, in random order. */
function compare(measure: Measure): Comparison {
  // All guesses are made beforehand, so that the time is that of the check alone.
  const trials = Array.from({ length: TRIALS + TRIALS / 5 }, () => {
    const kind: Kind = randomInt(2) === 0 ? "early" : "late";
    return { kind, run: measure(kind), time: 0 };
  });
  for (const trial of trials) trial.time = trial.run();
  const warm = trials.slice(-TRIALS);
  const most = Float64Array.from(warm, ({ time }) => time).sort()[Math.floor(TRIALS * KEPT)] ?? 0;
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

const passesOnce = (measure: Measure, isAlike: (comparison: Comparison) => boolean): boolean =>
  Array(REPETITIONS)
    .keys()
    .some(() => isAlike(compare(measure)));

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

test("tokens are compared in constant time", () => {
  const measure = measured(lookup, (kind) => [wrongAt(kind, TOKENS[randomInt(TOKENS.length)] ?? "")]);
  expect(passesOnce(measure, isInsignificant)).toBe(true);
});

describe("the fixed user and password are compared in constant time", () => {
  test.each<[what: string, measure: Measure]>([
    ["the wrong character of a password", measured(checkFixed, (kind) => [USER, wrongAt(kind, PASSWORD)])],
    ["the wrong character of a user name", measured(checkFixed, (kind) => [wrongAt(kind, USER), PASSWORD])],
    ["the length of a password", (kind) => measured(SHORT_AND_LONG[kind], () => [USER, PASSWORD])(kind)],
  ])("for any value of %s", (_what, measure) => {
    expect(passesOnce(measure, isInsignificant)).toBe(true);
  });

  test("for a wrong user and for a wrong password", () => {
    const measure = measured(checkFixed, (kind) =>
      kind === "early" ? [wrongAt("late", USER), copy(PASSWORD)] : [copy(USER), wrongAt("late", PASSWORD)],
    );
    // A short circuit would save a digest, which is a third of the time. Branch prediction matters much less.
    expect(passesOnce(measure, ({ ratio }) => Math.abs(ratio - 1) < 0.1)).toBe(true);
  });
});

test("the test detects an ordinary comparison", () => {
  const check = (tried = ""): boolean => {
    for (let at = 0; at < PASSWORD.length; at++)
      if (tried.charCodeAt(at) !== PASSWORD.charCodeAt(at)) return false;
    return tried.length === PASSWORD.length;
  };
  const measure = measured(check, (kind) => [wrongAt(kind, PASSWORD)]);
  expect(passesOnce(measure, ({ t }) => t < T_PLANTED)).toBe(false);
});
