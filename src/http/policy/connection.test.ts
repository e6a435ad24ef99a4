import { describe, expect, test } from "bun:test";
import { type ConnectionInfo, createConnectionInfoReader, validateBlock } from "./connection.ts";

/** The headers of a request by name; a list is sent as so many lines. */
type Sent = Readonly<Record<string, string | readonly string[]>>;

function headersOf(sent: Sent): Headers {
  const headers = new Headers();
  for (const [name, values] of Object.entries(sent)) {
    for (const value of [values].flat()) headers.append(name, value);
  }
  return headers;
}

const PROXIES = ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "127.0.0.1"];

interface Circumstances {
  readonly proxies?: readonly string[];
  readonly protocol?: "http" | "https";
}

function read(
  address: string | undefined,
  sent: Sent = {},
  { proxies = PROXIES, protocol = "http" }: Circumstances = {},
) {
  const peer = {
    protocol,
    requestIP: () => (address === undefined ? null : { address }),
    timeout: () => {},
  };
  return createConnectionInfoReader(proxies)(
    new Request("http://localhost/", { headers: headersOf(sent) }),
    peer,
  );
}

function remote(...from: Parameters<typeof read>) {
  const { address, isSecure: confidential } = read(...from);
  return { address, confidential };
}

const HTTPS = { "X-Forwarded-Proto": "https" };

describe("without trusted proxies", () => {
  test.each<[what: string, address: string | undefined, sent: Sent, confidential: boolean]>([
    ["this machine", "127.0.0.1", {}, true],
    ["this machine by IPv6", "::1", {}, true],
    ["this machine on a dual-stack socket", "::ffff:127.0.0.1", {}, true],
    ["another machine", "198.51.100.7", {}, false],
    ["nobody any more", undefined, {}, false],
    ["another machine that says https", "198.51.100.7", HTTPS, false],
    ["a proxy on this machine", "127.0.0.1", { "X-Forwarded-For": "198.51.100.7" }, false],
    ["a proxy on this machine that says https", "127.0.0.1", HTTPS, false],
    ["a proxy on this machine, by RFC 7239", "127.0.0.1", { Forwarded: "for=127.0.0.1;proto=https" }, false],
    ["a proxy on this machine that only says Via", "::1", { Via: "1.1 proxy" }, false],
  ])("%s is taken by its address alone", (_what, address, sent, confidential) => {
    expect(remote(address, sent, { proxies: [] })).toEqual({ address: address ?? "", confidential });
  });

  test("our own TLS is confidential from anywhere", () => {
    for (const sent of [{}, { "X-Forwarded-Proto": "http" }]) {
      expect(remote("198.51.100.7", sent, { proxies: [], protocol: "https" })).toEqual({
        address: "198.51.100.7",
        confidential: true,
      });
    }
  });
});

describe("who is not a trusted proxy is not believed", () => {
  test.each(["198.51.100.7", "11.0.0.1", "192.0.2.2", "2001:db9::1", "::ffff:192.0.2.2", "::1"])(
    "%s",
    (address) => {
      const sent = { "X-Forwarded-For": "203.0.113.5", Forwarded: "for=203.0.113.5;proto=https", ...HTTPS };
      expect(remote(address, sent)).toEqual({ address, confidential: false });
    },
  );
});

describe("a trusted proxy is believed", () => {
  test.each(["10.9.8.7", "192.0.2.1", "2001:db8:5::1", "::ffff:10.9.8.7", "::ffff:a09:807", "127.0.0.1"])(
    "at %s",
    (proxy) => {
      expect(remote(proxy, { "X-Forwarded-For": "203.0.113.5", ...HTTPS })).toEqual({
        address: "203.0.113.5",
        confidential: true,
      });
    },
  );

  test.each<[what: string, sent: Sent, address: string, confidential: boolean]>([
    // What X-Forwarded-For says.
    ["one address", { "X-Forwarded-For": "203.0.113.5" }, "203.0.113.5", false],
    ["an address with a port", { "X-Forwarded-For": "203.0.113.5:4711" }, "203.0.113.5", false],
    ["an IPv6 address", { "X-Forwarded-For": "2001:db9::5" }, "2001:db9::5", false],
    ["an IPv6 address with a port", { "X-Forwarded-For": "[2001:db9::5]:4711" }, "2001:db9::5", false],
    ["an invention before the truth", { "X-Forwarded-For": "1.1.1.1, 203.0.113.5" }, "203.0.113.5", false],
    [
      "an invention in a line of its own",
      { "X-Forwarded-For": ["1.1.1.1", "203.0.113.5"] },
      "203.0.113.5",
      false,
    ],
    ["an invented trusted proxy", { "X-Forwarded-For": "10.0.0.2, 203.0.113.5" }, "203.0.113.5", false],
    ["an invented loopback", { "X-Forwarded-For": "127.0.0.1, 203.0.113.5" }, "203.0.113.5", false],
    ["a chain", { "X-Forwarded-For": "203.0.113.5, 10.0.0.2,10.0.0.3" }, "203.0.113.5", false],
    [
      "a chain with an invention",
      { "X-Forwarded-For": "1.1.1.1, 203.0.113.5, 10.0.0.2" },
      "203.0.113.5",
      false,
    ],
    ["a chain in IPv6 spelling", { "X-Forwarded-For": "203.0.113.5, ::ffff:10.0.0.2" }, "203.0.113.5", false],
    ["proxies alone", { "X-Forwarded-For": "10.0.0.2, 10.0.0.3" }, "10.0.0.2", false],
    ["garbage before the truth", { "X-Forwarded-For": '"><, 203.0.113.5' }, "203.0.113.5", false],
    ["garbage", { "X-Forwarded-For": "me" }, "10.0.0.1", false],
    ["garbage before a proxy", { "X-Forwarded-For": "me, 10.0.0.2" }, "10.0.0.2", false],
    ["unknown", { "X-Forwarded-For": "unknown" }, "10.0.0.1", false],
    ["an empty list", { "X-Forwarded-For": "" }, "10.0.0.1", false],
    ["an empty last entry", { "X-Forwarded-For": "203.0.113.5," }, "10.0.0.1", false],
    ["leading zeros", { "X-Forwarded-For": "010.1.2.3" }, "10.0.0.1", false],
    ["a block", { "X-Forwarded-For": "203.0.113.5/32" }, "10.0.0.1", false],
    [
      "a thousand proxies",
      { "X-Forwarded-For": `203.0.113.5${", 10.0.0.2".repeat(1000)}` },
      "203.0.113.5",
      false,
    ],
    // What X-Forwarded-Proto says.
    ["https", HTTPS, "10.0.0.1", true],
    ["HTTPS", { "X-Forwarded-Proto": " HTTPS " }, "10.0.0.1", true],
    ["http", { "X-Forwarded-Proto": "http" }, "10.0.0.1", false],
    ["https over https", { "X-Forwarded-Proto": "https,https" }, "10.0.0.1", true],
    ["https, then http", { "X-Forwarded-Proto": "https, http" }, "10.0.0.1", false],
    ["https in a line of its own, then http", { "X-Forwarded-Proto": ["https", "http"] }, "10.0.0.1", false],
    ["http, then https", { "X-Forwarded-Proto": "http, https" }, "10.0.0.1", false],
    ["no protocol", { "X-Forwarded-Proto": "" }, "10.0.0.1", false],
    ["something like https", { "X-Forwarded-Proto": "https1" }, "10.0.0.1", false],
    ["nothing of the protocol", { "X-Forwarded-Ssl": "on", "X-Forwarded-Port": "443" }, "10.0.0.1", false],
    // What Forwarded says.
    ["an element", { Forwarded: "for=203.0.113.5;proto=https" }, "203.0.113.5", true],
    [
      "an element in any case",
      { Forwarded: "By=10.0.0.1; FOR=203.0.113.5; Proto=HTTPS" },
      "203.0.113.5",
      true,
    ],
    ["a quoted address", { Forwarded: 'for="[2001:db9::5]:4711";proto=https' }, "2001:db9::5", true],
    ["escapes", { Forwarded: 'for="\\203.0.113.5";proto="https"' }, "203.0.113.5", true],
    ["no proto", { Forwarded: "for=203.0.113.5" }, "203.0.113.5", false],
    ["proto alone", { Forwarded: "proto=https" }, "10.0.0.1", true],
    ["a hidden client", { Forwarded: "for=_hidden;proto=https" }, "10.0.0.1", true],
    [
      "elements of a chain",
      { Forwarded: "for=203.0.113.5;proto=https, for=10.0.0.2;proto=https" },
      "203.0.113.5",
      true,
    ],
    [
      "a leg in clear",
      { Forwarded: "for=203.0.113.5;proto=https, for=10.0.0.2;proto=http" },
      "203.0.113.5",
      false,
    ],
    [
      "a first leg in clear",
      { Forwarded: "for=203.0.113.5;proto=http, for=10.0.0.2;proto=https" },
      "203.0.113.5",
      false,
    ],
    [
      "an invented element",
      { Forwarded: "for=1.1.1.1;proto=https, for=203.0.113.5;proto=http" },
      "203.0.113.5",
      false,
    ],
    [
      "an invented element in clear",
      { Forwarded: "for=1.1.1.1, for=203.0.113.5;proto=https" },
      "203.0.113.5",
      true,
    ],
    [
      "elements in lines",
      { Forwarded: ["for=1.1.1.1;proto=https", "for=203.0.113.5"] },
      "203.0.113.5",
      false,
    ],
    [
      "an open quote before the truth",
      { Forwarded: 'for="1.1.1.1;proto=https, for=203.0.113.5;proto=https' },
      "10.0.0.1",
      false,
    ],
    ["a name twice", { Forwarded: "for=203.0.113.5;proto=http;proto=https" }, "10.0.0.1", false],
    ["a comma in a quote", { Forwarded: 'for="203.0.113.5, for=1.1.1.1";proto=https' }, "10.0.0.1", true],
    ["no pair", { Forwarded: "https" }, "10.0.0.1", false],
    ["an empty element", { Forwarded: "for=203.0.113.5;proto=https," }, "10.0.0.1", false],
    ["nothing", { Forwarded: "" }, "10.0.0.1", false],
    // Both kinds.
    [
      "both kinds, agreeing",
      { Forwarded: "for=203.0.113.5;proto=https", "X-Forwarded-For": "203.0.113.5", ...HTTPS },
      "203.0.113.5",
      true,
    ],
    [
      "both kinds, of other clients",
      { Forwarded: "for=1.1.1.1;proto=https", "X-Forwarded-For": "203.0.113.5", ...HTTPS },
      "10.0.0.1",
      true,
    ],
    [
      "an invented Forwarded over http",
      { Forwarded: "for=1.1.1.1;proto=https", "X-Forwarded-Proto": "http" },
      "1.1.1.1",
      false,
    ],
    [
      "an invented X-Forwarded-Proto over http",
      { Forwarded: "for=203.0.113.5;proto=http", ...HTTPS },
      "203.0.113.5",
      false,
    ],
    [
      "a garbled Forwarded",
      { Forwarded: ";", "X-Forwarded-For": "203.0.113.5", ...HTTPS },
      "10.0.0.1",
      false,
    ],
  ])("that says %s", (_what, sent, address, confidential) => {
    expect(remote("10.0.0.1", sent)).toEqual({ address, confidential });
  });

  test.each<[what: string, sent: Sent, confidential: boolean]>([
    ["no header", {}, false],
    ["X-Forwarded-For alone", { "X-Forwarded-For": "203.0.113.5" }, false],
    ["X-Forwarded-Proto: http", { "X-Forwarded-Proto": "http" }, false],
    ["Forwarded without proto", { Forwarded: "for=203.0.113.5" }, false],
    ["X-Forwarded-Proto: https", HTTPS, true],
    ["Forwarded with proto=https", { Forwarded: "for=203.0.113.5;proto=https" }, true],
  ])("over our own TLS with %s, only an explicit https is confidential", (_what, sent, confidential) => {
    expect(remote("10.0.0.1", sent, { protocol: "https" }).confidential).toBe(confidential);
  });

  test("on this machine, where only an explicit https is confidential", () => {
    expect(remote("127.0.0.1", {}).confidential).toBe(false);
    expect(remote("127.0.0.1", { "X-Forwarded-For": "127.0.0.1" }).confidential).toBe(false);
    expect(remote("127.0.0.1", { "X-Forwarded-Proto": "http" }).confidential).toBe(false);
    expect(remote("127.0.0.1", { Via: "1.1 proxy" }).confidential).toBe(false);
    expect(remote("127.0.0.1", HTTPS).confidential).toBe(true);
  });
});

test.each<
  [sender: string, address: string | undefined, sent: Sent, forwarding: ConnectionInfo["forwarding"]]
>([
  ["a trusted proxy that names its client", "10.0.0.1", { "X-Forwarded-For": "203.0.113.5" }, "used"],
  ["a trusted proxy by RFC 7239", "10.0.0.1", { Forwarded: "for=203.0.113.5" }, "used"],
  ["a trusted proxy that hides its client", "127.0.0.1", { Forwarded: "for=_hidden" }, "used"],
  [
    "a trusted proxy that contradicts itself",
    "127.0.0.1",
    { Forwarded: "for=203.0.113.5", "X-Forwarded-For": "203.0.113.6" },
    "used",
  ],
  ["a trusted proxy that names no client", "10.0.0.1", HTTPS, "none"],
  ["a trusted address without headers", "127.0.0.1", {}, "none"],
  ["an unlisted proxy", "198.51.100.7", { "X-Forwarded-For": "203.0.113.5" }, "ignored"],
  ["an unlisted proxy by RFC 7239", "::1", { Forwarded: "for=203.0.113.5" }, "ignored"],
  ["an unlisted proxy that only says Via", "198.51.100.7", { Via: "1.1 proxy" }, "ignored"],
  ["another machine without headers", "198.51.100.7", {}, "none"],
  ["a client that has disconnected", undefined, {}, "none"],
])("the forwarding headers of %s", (_sender, address, sent, forwarding) => {
  expect(read(address, sent).forwarding).toBe(forwarding);
});

test.each(["10.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "::1", "2001:db8::/32", "::ffff:10.0.0.0/104", "::/0"])(
  "checkedBlock takes %s",
  (text) => {
    expect(validateBlock(text)).toBe(text);
  },
);

test.each([
  "",
  "loopback",
  "proxy.example.com",
  "10.0.0.0/33",
  "10.0.0.0/-1",
  "10.0.0.0/",
  "10.0.0.0/8/8",
  "10.0.0",
  "::/129",
  "[::1]",
  "10.0.0.1:80",
  " 10.0.0.1",
])("validateBlock rejects %j", (text) => {
  expect(() => validateBlock(text)).toThrow(
    /^".*" (?:is not an IP address or a CIDR block|has a prefix that is longer)/,
  );
});
