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
])("matchesEtag does not match If-None-Match %s with the tag %s", (ifNoneMatch, etag) => {
  expect(matchesEtag(ifNoneMatch, etag)).toBe(false);
});
