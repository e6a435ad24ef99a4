import { describe, expect, test } from "bun:test";
import { Failure } from "../failure.ts";
import { hashPassword, passwordVerifier } from "./password.ts";

const AT_ONCE = 2;
const WAITING_MOST = 64;

/** Verifies as the test says: each one that has begun, to be ended by it. */
function inHand() {
  const begun: { readonly password: string; readonly end: PromiseWithResolvers<boolean> }[] = [];
  const verify = passwordVerifier((password) => {
    const end = Promise.withResolvers<boolean>();
    begun.push({ password, end });
    return end.promise;
  });
  return { begun, verify };
}

const turn = (): Promise<void> => Bun.sleep(0);

describe("passwordVerifier", () => {
  test.each([
    { algorithm: "bcrypt", cost: 4 },
    { algorithm: "argon2id", memoryCost: 8, timeCost: 1 },
  ] as const)("verifies $algorithm", async (algorithm) => {
    const verify = passwordVerifier();
    const hash = await Bun.password.hash("secret", algorithm);
    expect([await verify("secret", hash), await verify("wrong", hash)]).toEqual([true, false]);
  });

  test("verifies two at once, in the order they came", async () => {
    const { begun, verify } = inHand();
    const passwords = ["a", "b", "c", "d", "e"];
    const results = passwords.map((password) => verify(password, "hash"));
    for (const [index, password] of passwords.entries()) {
      await turn();
      expect(begun.length).toBe(Math.min(index + AT_ONCE, passwords.length));
      expect(begun[index]?.password).toBe(password);
      begun[index]?.end.resolve(password === "c");
    }
    expect(await Promise.all(results)).toEqual([false, false, true, false, false]);
  });

  test("refuses what the queue has no room for, and takes it later", async () => {
    const { begun, verify } = inHand();
    const results = Array.from({ length: AT_ONCE + WAITING_MOST }, () => verify("a", "hash"));
    for (const _ of [1, 2]) {
      const refused = await Promise.race([verify("b", "hash").catch((error: unknown) => error), turn()]);
      expect(refused).toBeInstanceOf(Failure);
      expect(refused).toMatchObject({ code: "credentials_unavailable" });
    }
    expect(begun.length).toBe(AT_ONCE);
    begun[0]?.end.resolve(true);
    expect(await results[0]).toBe(true);
    results.push(verify("c", "hash"));
    for (let index = 1; index < results.length; index++) {
      await turn();
      begun[index]?.end.resolve(true);
    }
    expect((await Promise.all(results)).every(Boolean)).toBe(true);
    expect(begun.at(-1)?.password).toBe("c");
  });

  test("lets networks have their turns, however many of one wait", async () => {
    const { begun, verify } = inHand();
    const results = Array.from({ length: 20 }, () => verify("flood", "hash", "192.0.2.1"));
    results.push(verify("b", "hash", "192.0.2.2"), verify("c", "hash", "192.0.2.3"));
    for (let index = 0; index < results.length; index++) {
      await turn();
      begun[index]?.end.resolve(true);
    }
    await Promise.all(results);
    const order = begun.map(({ password }) => password);
    expect(order.slice(0, 6)).toEqual(["flood", "flood", "flood", "b", "c", "flood"]);
  });

  test("makes room for another network, at the end of the one with most in the queue", async () => {
    const { begun, verify } = inHand();
    const outcome = (password: string, network: string) =>
      verify(password, "hash", network).then(
        () => "verified",
        (error: unknown) => (error instanceof Failure ? error.code : error),
      );
    const flood = Array.from({ length: AT_ONCE + WAITING_MOST }, () => outcome("flood", "192.0.2.1"));
    const owner = outcome("owner", "192.0.2.2");
    expect(await flood.at(-1)).toBe("credentials_unavailable");
    for (let index = 0; index < AT_ONCE + WAITING_MOST; index++) {
      await turn();
      begun[index]?.end.resolve(true);
    }
    expect(await owner).toBe("verified");
    expect((await Promise.all(flood)).filter((one) => one === "verified").length).toBe(flood.length - 1);
    expect(begun[AT_ONCE + 1]?.password).toBe("owner");
  });

  test("refuses newcomers where as many networks wait as there is room, and goes on", async () => {
    const { begun, verify } = inHand();
    const results = Array.from({ length: AT_ONCE + WAITING_MOST }, (_, index) =>
      verify("a", "hash", `192.0.2.${index}`),
    );
    for (const newcomer of ["one", "another", "a third"]) {
      const refused = await Promise.race([
        verify("b", "hash", newcomer).catch((error: unknown) => error),
        ...results,
        Bun.sleep(100),
      ]);
      expect(refused).toMatchObject({ code: "credentials_unavailable" });
    }
    for (let index = 0; index < AT_ONCE + WAITING_MOST; index++) {
      await turn();
      begun[index]?.end.resolve(true);
    }
    await Promise.all(results);
    results.push(verify("c", "hash", "one"));
    await turn();
    expect(begun.at(-1)?.password).toBe("c");
    begun.at(-1)?.end.resolve(true);
    expect((await Promise.all(results)).every(Boolean)).toBe(true);
  });

  test("goes on after a hash that cannot be verified", async () => {
    const { begun, verify } = inHand();
    const results = ["a", "b", "c", "d"].map((password) => verify(password, "hash").catch(() => "failed"));
    for (let index = 0; index < results.length; index++) {
      await turn();
      begun[index]?.end.reject(new Error("no hash"));
    }
    expect(await Promise.all(results)).toEqual(results.map(() => "failed"));
    const after = [1, 2, 3].map(() => verify("after", "hash"));
    for (const index of [4, 5, 6]) {
      await turn();
      begun[index]?.end.resolve(true);
    }
    expect(await Promise.all(after)).toEqual([true, true, true]);
  });

  test("gives each of many at once its own answer", async () => {
    const verify = passwordVerifier();
    const hash = await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 });
    const passwords = Array.from({ length: 20 }, (_, index) =>
      index % 3 === 0 ? "secret" : `wrong ${index}`,
    );
    const matches = await Promise.all(passwords.map((password) => verify(password, hash)));
    expect(matches).toEqual(passwords.map((password) => password === "secret"));
  });

  test("fails when a thread dies, and goes on in another", async () => {
    const dead = URL.createObjectURL(new Blob(['onmessage = () => { throw new Error("dead") }']));
    const { Worker } = globalThis;
    globalThis.Worker = class extends Worker {
      constructor() {
        super(dead);
      }
    };
    const verify = passwordVerifier();
    const failed = verify("secret", "hash").catch(String);
    globalThis.Worker = Worker;
    expect(await failed).toContain("dead");
    URL.revokeObjectURL(dead);
    const hash = await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 });
    expect(await verify("secret", hash)).toBe(true);
  });

  test("goes on after what is no hash", async () => {
    const verify = passwordVerifier();
    const hash = await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 4 });
    for (let round = 0; round < 5; round++) {
      const none = await verify("secret", "no hash").catch((error: unknown) => error);
      expect(none).toBeInstanceOf(Error);
      expect(await verify("secret", hash)).toBe(true);
    }
  });
});

describe("hashPassword", () => {
  test("hashes as Apache does, at cost 12, with a salt of its own", async () => {
    const [one, other] = await Promise.all([hashPassword("secret"), hashPassword("secret")]);
    for (const hash of [one, other]) expect(hash).toMatch(/^\$2y\$12\$[./A-Za-z0-9]{53}$/);
    expect(one).not.toBe(other);
    const verify = passwordVerifier();
    expect([await verify("secret", one), await verify("Secret", one)]).toEqual([true, false]);
  }, 60_000);

  test("hashes all of 72 bytes", async () => {
    const hash = await hashPassword("x".repeat(72));
    const verify = passwordVerifier();
    expect(await verify("x".repeat(72), hash)).toBe(true);
    for (const other of [`${"x".repeat(71)}y`, "x".repeat(71)]) expect(await verify(other, hash)).toBe(false);
  }, 60_000);
});
