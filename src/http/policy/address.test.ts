import { expect, test } from "bun:test";
import { isLoopback, networkPrefix } from "./address.ts";

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

test.each([
  ["192.0.2.1", "192.0.2.1"],
  ["::ffff:192.0.2.1", "192.0.2.1"],
  ["::FFFF:192.0.2.1", "192.0.2.1"],
  ["::ffff:10.20.130.240", "10.20.130.240"],
  ["::ffff:c000:201", "192.0.2.1"],
  ["0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"],
  ["0::FFFF:192.0.2.1", "192.0.2.1"],
  ["0:0:0:0:0:ffff:c000:0201", "192.0.2.1"],
  ["2001:db8::1", "2001:db8:0:0::/64"],
  ["2001:0DB8::ffff:ffff:ffff:ffff", "2001:db8:0:0::/64"],
  ["2001:db8:0:0:1:2:3:4", "2001:db8:0:0::/64"],
  ["2001:db8:0:1::1", "2001:db8:0:1::/64"],
  ["2001:db8::1:0:0:0:0", "2001:db8:0:1::/64"],
  ["64:ff9b::192.0.2.1", "64:ff9b:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
  ["::", "0:0:0:0::/64"],
  ["", ""],
])("the network of %s is %s", (address, network) => {
  expect(networkPrefix(address)).toBe(network);
});
