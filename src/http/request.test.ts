import { expect, test } from "bun:test";
import type { Identity } from "../credential/client.ts";
import { matchesEtag, storedIdempotencyKey } from "./request.ts";

test.each<[ifNoneMatch: string, etag: string]>([
  ['"a"', '"a"'],
  ['W/"a"', '"a"'],
  ['"a"', 'W/"a"'],
  ['W/"a"', 'W/"a"'],
  ["*", '"a"'],
  ['"x", "a"', '"a"'],
  ['"x","a","y"', '"a"'],
  [', ,W/"x" ,\tW/"a" ,', '"a"'],
  ['"x,y", "a"', '"a"'],
  ['"a,b"', '"a,b"'],
  ['""', '""'],
  // What nginx, Apache, Jetty, and several proxies in a row make of a tag.
  ['W/"e-1"', '"e-1"'],
  ['"e-1-gzip"', '"e-1"'],
  ['W/"e-1-br"', '"e-1"'],
  ['"e-1--gzip"', '"e-1"'],
  ['"e-1;gz"', '"e-1"'],
  ['"e-1-gzip-zstd"', 'W/"e-1"'],
  ['"x-1-gzip", W/"e-1-gzip" , "y-1"', '"e-1"'],
  ['"a-b"', '"a-b"'],
])("matchesEtag matches If-None-Match %s with the tag %s", (ifNoneMatch, etag) => {
  expect(matchesEtag(ifNoneMatch, etag)).toBe(true);
});

test.each<[ifNoneMatch: string, etag: string]>([
  ["", '"a"'],
  ["a", '"a"'],
  ['"A"', '"a"'],
  ['"b"', '"a"'],
  ['w/"a"', '"a"'],
  ['"x,"a","y"', '"y,"'],
  ['"x,a,y"', '"a"'],
  ['"*"', '"a"'],
  ['"x", *', '"a"'],
  ['"a" "b"', '"a"'],
  ['"e-2-gzip"', '"e-1"'],
  ['"e-1gzip"', '"e-1"'],
  ['"e-1-2"', '"e-1"'],
  ['"e-1-"', '"e-1"'],
  ['"e-1-gzip-2"', '"e-1"'],
  ['"e-1"', '"e-1-gzip"'],
  [`"${"-a".repeat(8000)}A"`, '"a"'],
])("matchesEtag does not match If-None-Match %s with the tag %s", (ifNoneMatch, etag) => {
  expect(matchesEtag(ifNoneMatch, etag)).toBe(false);
});

test("storedIdempotencyKey distinguishes the kind and the name of an identity, but not its API keys", () => {
  const client = (name: string, keyId?: string): Identity => ({
    ...{ kind: "client", name, scope: "write", keyId, isRevoked: undefined },
  });
  const keys = [
    storedIdempotencyKey("one", undefined),
    storedIdempotencyKey("one", client("phone", "rotated0")),
    storedIdempotencyKey("other", client("phone")),
    storedIdempotencyKey("one", client("laptop")),
    storedIdempotencyKey("one", { ...client("phone"), kind: "user" }),
    storedIdempotencyKey("x".repeat(255), client("phone")),
  ];
  expect(storedIdempotencyKey("one", client("phone", "another0"))).toBe(keys[1] ?? "");
  expect(new Set(keys).size).toBe(keys.length);
  expect([keys[0], keys[5]?.length]).toEqual(["one", 43]);
});
