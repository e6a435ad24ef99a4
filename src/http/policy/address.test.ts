import { expect, test } from "bun:test";
import { isLocalHost, isLoopback, isLoopbackHost, isLoopbackOrigin, networkPrefix } from "./address.ts";

test.each<[expected: boolean, addresses: readonly string[]]>([
  [true, ["127.0.0.1", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1"]],
  [false, ["126.255.255.255", "128.0.0.1", "0.0.0.0", "::", "::2", "::ffff:10.0.0.1", "fe80::1"]],
  [false, ["", "no address"]],
])("isLoopback returns %p for %j", (expected, addresses) => {
  for (const address of addresses) expect([address, isLoopback(address)]).toEqual([address, expected]);
});

test.each<[network: string, addresses: readonly string[]]>([
  ["192.0.2.1", ["192.0.2.1", "::ffff:192.0.2.1", "::FFFF:192.0.2.1", "::ffff:c000:201"]],
  ["192.0.2.1", ["0:0:0:0:0:ffff:192.0.2.1", "0::FFFF:192.0.2.1", "0:0:0:0:0:ffff:c000:0201"]],
  ["10.20.130.240", ["::ffff:10.20.130.240"]],
  ["2001:db8:0:0::/64", ["2001:db8::1", "2001:0DB8::ffff:ffff:ffff:ffff", "2001:db8:0:0:1:2:3:4"]],
  ["2001:db8:0:1::/64", ["2001:db8:0:1::1", "2001:db8::1:0:0:0:0"]],
  ["64:ff9b:0:0::/64", ["64:ff9b::192.0.2.1"]],
  ["fe80:0:0:0::/64", ["fe80::1%eth0"]],
  ["0:0:0:0::/64", ["::1", "::"]],
  ["", [""]],
])("networkPrefix returns %j for %j", (network, addresses) => {
  for (const address of addresses) expect([address, networkPrefix(address)]).toEqual([address, network]);
});

type Kind = "loopback" | "local" | "other";

test.each<[kind: Kind, what: string, hosts: readonly string[]]>([
  ["loopback", "a name", ["localhost", "LocalHost:3000"]],
  ["loopback", "an address", ["127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:3000"]],
  ["local", "an IPv4 address", ["10.0.0.5", "0.0.0.0:80"]],
  ["local", "an IPv6 address", ["[fe80::1%25eth0]:3000", "[::ffff:10.0.0.5]"]],
  ["local", "a name without a dot", ["nas", "NAS:3000", "todo_api"]],
  ["local", "a name below a local domain", ["nas.local", "a.b.Lan:80", "x.internal", "tv.home.arpa"]],
  ["local", "a name below localhost", ["app.localhost:3000"]],
  ["other", "a public name", ["", "elsewhere.example", "elsewhere.example.", "local.example"]],
  ["other", "an address in a name", ["127.0.0.1.elsewhere.example", "[::1].elsewhere.example"]],
  ["other", "a local name in a name", ["nas.local.elsewhere.example", "nas.local.", ".local", "nas..local"]],
  ["other", "a user", ["localhost@elsewhere.example", "user@localhost"]],
  ["other", "a bad port", ["localhost:", "localhost:x", "localhost:123456"]],
  [
    "other",
    "another notation",
    ["127.1", "localhost.", "[::1", "l\xf6calhost", "localhost%2eelsewhere.example"],
  ],
])("isLoopbackHost and isLocalHost know a %s host: %s", (kind, _what, hosts) => {
  for (const host of hosts) {
    expect([host, isLoopbackHost(host)]).toEqual([host, kind === "loopback"]);
    expect([host, isLocalHost(host)]).toEqual([host, kind !== "other"]);
  }
});

test.each<[isAccepted: boolean, what: string, origins: readonly string[]]>([
  [true, "a name", ["http://localhost", "https://localhost:8443"]],
  [true, "an address", ["http://127.0.0.1:3000", "http://[::1]:3000"]],
  [
    false,
    "another host",
    ["http://localhost.elsewhere.example", "http://xlocalhost:80", "http://localhost."],
  ],
  [false, "a user", ["http://localhost@elsewhere.example"]],
  [false, "another scheme", ["localhost", "chrome-extension://localhost", "null", "*", ""]],
  [false, "another notation", ["http://LOCALHOST", "http://localhost:80/", "http://[::ffff:127.0.0.1]"]],
  [false, "two origins", ["http://localhost\thttp://localhost"]],
])("isLoopbackOrigin returns %p for %s", (isAccepted, _what, origins) => {
  for (const origin of origins) expect([origin, isLoopbackOrigin(origin)]).toEqual([origin, isAccepted]);
});
