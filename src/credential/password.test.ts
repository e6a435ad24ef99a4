import { expect, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { skipFor } from "../../test/skip.ts";
import { ServiceError } from "../error.ts";
import { createPasswordVerifier, hashPassword } from "./password.ts";

const MAX_CONCURRENT = 2;
const MAX_QUEUED = 64;
const HASH = Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 });

function controlledVerifier() {
  const started: { readonly password: string; readonly end: PromiseWithResolvers<boolean> }[] = [];
  const verify = createPasswordVerifier((password) => {
    const end = Promise.withResolvers<boolean>();
    started.push({ password, end });
    return end.promise;
  });
  /** Completes verifications as they start, from the one with a number up to another. */
  const finish = async (from: number, to: number): Promise<void> => {
    for (let index = from; index < to; index++) {
      await turn();
      started[index]?.end.resolve(true);
    }
  };
  return { started, verify, finish };
}

/** Returns the error of a verification that is rejected at once. */
const refusalOf = (verification: Promise<boolean>): Promise<unknown> =>
  Promise.race([verification.catch((error: unknown) => error), turn()]);

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test.each([
  { algorithm: "bcrypt", cost: 4 },
  { algorithm: "argon2id", memoryCost: 8, timeCost: 1 },
] as const)("createPasswordVerifier verifies $algorithm", async (algorithm) => {
  const verify = createPasswordVerifier();
  const hash = await Bun.password.hash("secret", algorithm);
  expect([await verify("secret", hash), await verify("wrong", hash)]).toEqual([true, false]);
});

test("createPasswordVerifier verifies two passwords concurrently, in order of arrival", async () => {
  const { started, verify } = controlledVerifier();
  const passwords = ["a", "b", "c", "d", "e"];
  const results = passwords.map((password) => verify(password, "hash"));
  for (const [index, password] of passwords.entries()) {
    await turn();
    expect(started.length).toBe(Math.min(index + MAX_CONCURRENT, passwords.length));
    expect(started[index]?.password).toBe(password);
    started[index]?.end.resolve(password === "c");
  }
  expect(await Promise.all(results)).toEqual([false, false, true, false, false]);
});

test.each([
  ["one network", () => "192.0.2.1"],
  ["different networks", (index: number) => `192.0.2.${index}`],
])("createPasswordVerifier rejects requests only while the queue is full of %s", async (_what, networkOf) => {
  const { started, verify, finish } = controlledVerifier();
  const results = Array.from({ length: MAX_CONCURRENT + MAX_QUEUED }, (_, index) =>
    verify("a", "hash", networkOf(index)),
  );
  for (const newcomer of [1000, 1001]) {
    const detail = "Too many passwords are being checked.";
    const refusal = { code: "credentials_unavailable", detail };
    expect(await refusalOf(verify("b", "hash", networkOf(newcomer)))).toMatchObject(refusal);
  }
  expect(started.length).toBe(MAX_CONCURRENT);
  await finish(0, 1);
  expect(await results[0]).toBe(true);
  results.push(verify("c", "hash", networkOf(1000)));
  await finish(1, results.length);
  expect((await Promise.all(results)).every(Boolean)).toBe(true);
  expect(started.at(-1)?.password).toBe("c");
});

test("createPasswordVerifier serves queued requests of different networks in turn", async () => {
  const { started, verify, finish } = controlledVerifier();
  const results = Array.from({ length: 20 }, () => verify("flood", "hash", "192.0.2.1"));
  results.push(verify("b", "hash", "192.0.2.2"), verify("c", "hash", "192.0.2.3"));
  await finish(0, results.length);
  await Promise.all(results);
  const order = started.map(({ password }) => password);
  expect(order.slice(0, 6)).toEqual(["flood", "flood", "flood", "b", "c", "flood"]);
});

test("createPasswordVerifier rejects the newest request of the network with the most queued requests when another network needs room", async () => {
  const { started, verify, finish } = controlledVerifier();
  const outcome = (password: string, network: string) =>
    verify(password, "hash", network).then(
      () => "verified",
      (error: unknown) => (error instanceof ServiceError ? error.code : error),
    );
  const flood = Array.from({ length: MAX_CONCURRENT + MAX_QUEUED }, () => outcome("flood", "192.0.2.1"));
  const owner = outcome("owner", "192.0.2.2");
  expect(await flood.at(-1)).toBe("credentials_unavailable");
  await finish(0, MAX_CONCURRENT + MAX_QUEUED);
  expect(await owner).toBe("verified");
  expect((await Promise.all(flood)).filter((one) => one === "verified").length).toBe(flood.length - 1);
  expect(started[MAX_CONCURRENT + 1]?.password).toBe("owner");
});

test("createPasswordVerifier continues after a hash that cannot be verified", async () => {
  const { started, verify, finish } = controlledVerifier();
  const results = ["a", "b", "c", "d"].map((password) => verify(password, "hash").catch(() => "failed"));
  for (let index = 0; index < results.length; index++) {
    await turn();
    started[index]?.end.reject(new Error("no hash"));
  }
  expect(await Promise.all(results)).toEqual(results.map(() => "failed"));
  const after = [1, 2, 3].map(() => verify("after", "hash"));
  await finish(4, 7);
  expect(await Promise.all(after)).toEqual([true, true, true]);
});

function withThreads(code: string, run: () => void): Worker[] {
  const url = URL.createObjectURL(new Blob([code]));
  const started: Worker[] = [];
  const { Worker } = globalThis;
  globalThis.Worker = class extends Worker {
    constructor() {
      super(url);
      started.push(this);
    }
  };
  try {
    run();
  } finally {
    globalThis.Worker = Worker;
  }
  return started;
}

test.each<[what: string, code: string, reason: string]>([
  ["throws", 'throw new Error("dead")', "dead"],
  ["exits without an error", "process.exit(0)", "exited"],
  ["exits with a code", "process.exit(3)", "exited"],
])("createPasswordVerifier fails when a thread %s, then starts another", async (_what, code, reason) => {
  const verify = createPasswordVerifier();
  let failed: Promise<unknown> | undefined;
  withThreads(`onmessage = () => { ${code} }`, () => {
    failed = verify("secret", "hash").catch(String);
  });
  expect(await failed).toContain(reason);
  expect(await verify("secret", await HASH)).toBe(true);
});

test("createPasswordVerifier starts another thread when an idle one has exited", async () => {
  const verify = createPasswordVerifier();
  const code = `onmessage = ({ data }) => {
    postMessage({ id: data.id, result: true });
    setTimeout(() => process.exit(0), 20);
  }`;
  let verified: Promise<boolean> | undefined;
  const [thread] = withThreads(code, () => {
    verified = verify("wrong", "hash");
  });
  const exited = new Promise((resolve) => thread?.addEventListener("close", resolve));
  expect(await verified).toBe(true);
  await exited;
  expect(await verify("wrong", await HASH)).toBe(false);
});

test("createPasswordVerifier keeps its thread after a hash that cannot be verified", async () => {
  const verify = createPasswordVerifier();
  const code = 'onmessage = ({ data }) => postMessage({ id: data.id, error: { message: "no hash" } })';
  const outcomes: Promise<unknown>[] = [];
  const verifyNext = (): void => {
    outcomes.push(verify("secret", "hash").catch(String));
  };
  const started = withThreads(code, verifyNext);
  expect(await outcomes[0]).toContain("no hash");
  const startedLater = withThreads(code, verifyNext);
  expect(await outcomes[1]).toContain("no hash");
  expect([started.length, startedLater.length]).toEqual([1, 0]);
  for (const thread of started) thread.terminate();
});

test.skipIf(skipFor(process.platform === "linux" ? undefined : "only Linux has priorities per thread"))(
  "createPasswordVerifier verifies in a thread of low priority",
  async () => {
    await createPasswordVerifier()("secret", await HASH);
    const ids = await readdir("/proc/self/task");
    // A thread can end meanwhile.
    const read = (id: string) => readFile(`/proc/self/task/${id}/stat`, "utf8").catch(() => "");
    const stats = await Promise.all(ids.map(read));
    // proc(5): the nice value is field 19, and the name in parentheses is field 2.
    const niceValues = stats.map((stat) => Number(stat.replace(/^.*\) /s, "").split(" ")[16]));
    expect(niceValues).toContain(15);
  },
);

test("hashPassword returns a bcrypt hash for Apache with cost 12, a random salt and all 72 bytes", async () => {
  const password = "x".repeat(72);
  const [one, other] = await Promise.all([hashPassword(password), hashPassword("secret")]);
  for (const hash of [one, other]) expect(hash).toMatch(/^\$2y\$12\$[./A-Za-z0-9]{53}$/);
  const saltOf = (hash: string): string => hash.slice(0, 29);
  expect(saltOf(one)).not.toBe(saltOf(other));
  const verify = createPasswordVerifier();
  const guesses = [password, `${"x".repeat(71)}y`, "x".repeat(71)];
  expect(await Promise.all(guesses.map((guess) => verify(guess, one)))).toEqual([true, false, false]);
});
