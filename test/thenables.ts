import { runInNewContext } from "node:vm";

type Settle = () => Promise<unknown>;
type Resolve = (value: unknown) => void;

/** Makes an object or a function thenable. */
function withThen(target: object, settle: Settle): object {
  Reflect.set(target, "then", (resolve: Resolve, reject: Resolve) => settle().then(resolve, reject));
  return target;
}

/** Promises that are not instances of this realm's Promise, by what they are. */
export const FOREIGN_THENABLES: Readonly<Record<string, (settle: Settle) => object>> = {
  "an object with then": (settle) => withThen({}, settle),
  "an object with then and a client's name": (settle) => withThen({ name: "mallory" }, settle),
  "an object that inherits then": (settle) =>
    Object.assign(Object.create(withThen({}, settle)), { name: "mallory" }),
  "a function with then": (settle) => withThen(() => true, settle),
  "a query that starts when it is awaited": (settle) =>
    withThen({ name: "mallory" }, () => new Promise((resolve) => setTimeout(resolve)).then(settle)),
  "a promise of another realm": (settle) => {
    const { promise, resolve, reject } = runInNewContext("Promise.withResolvers()");
    settle().then(resolve, reject);
    return promise;
  },
  "a thenable of a thenable": (settle) =>
    withThen({ name: "mallory" }, async () => withThen({ name: "mallory" }, settle)),
};
