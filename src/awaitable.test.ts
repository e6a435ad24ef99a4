import { expect, test } from "bun:test";
import { runInNewContext } from "node:vm";
import { chain, isThenable } from "./awaitable.ts";

type Settle = () => Promise<unknown>;
type Resolve = (value: unknown) => void;

/** Makes an object or a function thenable. */
function withThen(target: object, settle: Settle): object {
  Reflect.set(target, "then", (resolve: Resolve, reject: Resolve) => settle().then(resolve, reject));
  return target;
}

/** Promises that are not instances of this realm's Promise, by what they are. */
const FOREIGN_THENABLES: Readonly<Record<string, (settle: Settle) => object>> = {
  "an object with then": (settle) => withThen({}, settle),
  "an object that inherits then": (settle) => Object.create(withThen({}, settle)),
  "a function with then": (settle) => withThen(() => true, settle),
  "a promise of another realm": (settle) => {
    const { promise, resolve, reject } = runInNewContext("Promise.withResolvers()");
    settle().then(resolve, reject);
    return promise;
  },
  "a thenable of a thenable": (settle) => withThen({}, async () => withThen({}, settle)),
};

test.each(Object.entries(FOREIGN_THENABLES))("chain waits for %s", async (_what, thenable) => {
  const promise = thenable(async () => "settled");
  expect(isThenable(promise)).toBe(true);
  expect(await chain<unknown, unknown>(promise, (value) => [value])).toEqual(["settled"]);
});

test.each([undefined, null, true, "then", { name: "x" }, () => true])("chain never waits for %p", (value) => {
  expect(chain(value, (passed) => [passed])).toEqual([value]);
});
