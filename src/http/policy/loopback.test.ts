import { expect, test } from "bun:test";
import { isLoopback } from "./loopback.ts";

test.each([
  ["127.0.0.1", true],
  ["127.255.255.254", true],
  ["::1", true],
  ["0:0:0:0:0:0:0:1", true],
  ["::ffff:127.0.0.1", true],
  ["::ffff:7f00:1", true],
  ["126.255.255.255", false],
  ["128.0.0.1", false],
  ["0.0.0.0", false],
  ["::", false],
  ["::2", false],
  ["::ffff:10.0.0.1", false],
  ["fe80::1", false],
  ["", false],
  ["no address", false],
] as const)("isLoopback of %j is %p", (address, expected) => {
  expect(isLoopback(address)).toBe(expected);
});
