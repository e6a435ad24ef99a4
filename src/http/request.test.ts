import { expect, test } from "bun:test";
import type { Identity } from "../credential/client.ts";
import { matchesEtag, storedIdempotencyKey } from "./request.ts";

test.each<[etag: string, matches: boolean, headers: readonly string[]]>([
  ['"a"', true, ['"a"', 'W/"a"', "*", '"x", "a"', '"x","a","y"', ', ,W/"x" ,\tW/"a" ,', '"x,y", "a"']],
  ['W/"a"', true, ['"a"', 'W/"a"']],
  ['"a,b"', true, ['"a,b"']],
  ['""', true, ['""']],
  // What nginx, Apache, Jetty, and several proxies in a row make of a tag.
  ['"e-1"', true, ['W/"e-1"', '"e-1-gzip"', 'W/"e-1-br"', '"e-1--gzip"', '"e-1;gz"']],
  ['"e-1"', true, ['"x-1-gzip", W/"e-1-gzip" , "y-1"']],
  ['W/"e-1"', true, ['"e-1-gzip-zstd"']],
  ['"a-b"', true, ['"a-b"']],
  ['"a"', false, ["", "a", '"A"', '"b"', 'w/"a"', '"x,a,y"', '"*"', '"x", *', '"a" "b"']],
  ['"a"', false, [`"${"-a".repeat(8000)}A"`]],
  ['"y,"', false, ['"x,"a","y"']],
  ['"e-1"', false, ['"e-2-gzip"', '"e-1gzip"', '"e-1-2"', '"e-1-"', '"e-1-gzip-2"']],
  ['"e-1-gzip"', false, ['"e-1"']],
])("matchesEtag compares the tag %s: %p for the headers %j", (etag, matches, headers) => {
  for (const header of headers) expect([header, matchesEtag(header, etag)]).toEqual([header, matches]);
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
