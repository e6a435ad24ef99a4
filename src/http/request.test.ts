import { expect, test } from "bun:test";
import { matchesEtag } from "./request.ts";

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
