import { expect, test } from "bun:test";
import { validateBlock } from "./address.ts";
import { createConnectionInfoReader } from "./connection.ts";

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
  readonly onLoopback?: boolean;
}

function read(
  address: string | undefined,
  sent: Sent = {},
  { proxies = PROXIES, protocol = "http", onLoopback = false }: Circumstances = {},
) {
  const peer = {
    protocol,
    requestIP: () => (address === undefined ? null : { address }),
    timeout: () => {},
  };
  const request = new Request("http://localhost/", { headers: headersOf(sent) });
  const info = createConnectionInfoReader({ trustedProxies: proxies, onLoopback })(request, peer);
  return { address: info.address, isSecure: info.isSecure, forwarding: info.forwarding };
}

const HTTPS = { "X-Forwarded-Proto": "https" };

test.each<[what: string, address: string | undefined, sent: Sent, isSecure: boolean]>([
  ["this machine", "127.0.0.1", {}, true],
  ["this machine over IPv6", "::1", {}, true],
  ["this machine on a dual-stack socket", "::ffff:127.0.0.1", {}, true],
  ["another machine", "198.51.100.7", {}, false],
  ["a closed connection", undefined, {}, false],
  ["another machine that sends X-Forwarded-Proto: https", "198.51.100.7", HTTPS, false],
  ["a proxy that sends X-Forwarded-For", "127.0.0.1", { "X-Forwarded-For": "198.51.100.7" }, false],
  ["a proxy that sends Forwarded", "127.0.0.1", { Forwarded: "for=127.0.0.1;proto=https" }, false],
  ["a proxy that sends only Via", "::1", { Via: "1.1 proxy" }, false],
  ["a proxy that sends X-Real-IP", "127.0.0.1", { "X-Real-IP": "127.0.0.1" }, false],
  ["a proxy that sends an empty header", "127.0.0.1", { "X-Forwarded-Prefix": "" }, false],
])("without proxies, only direct loopback requests are secure: %s", (_what, address, sent, isSecure) => {
  const forwarding = Object.keys(sent).length > 0 ? "ignored" : "none";
  expect(read(address, sent, { proxies: [] })).toEqual({ address: address ?? "", isSecure, forwarding });
});

test("without trusted proxies, a request to a loopback address is secure without a look at its address, unless a proxy sends it", () => {
  const circumstances = { proxies: [], onLoopback: true };
  expect(read(undefined, {}, circumstances).isSecure).toBe(true);
  expect(read("127.0.0.1", { Via: "1.1 proxy" }, circumstances).isSecure).toBe(false);
});

test("without trusted proxies, a request over the server's own TLS is secure from any address", () => {
  for (const sent of [{}, { "X-Forwarded-Proto": "http" }]) {
    expect(read("198.51.100.7", sent, { proxies: [], protocol: "https" })).toMatchObject({
      address: "198.51.100.7",
      isSecure: true,
    });
  }
});

test.each(["198.51.100.7", "11.0.0.1", "192.0.2.2", "2001:db9::1", "::ffff:192.0.2.2", "::1"])(
  "the forwarding headers of an address that is not trusted from %s are ignored",
  (address) => {
    const sent = { "X-Forwarded-For": "203.0.113.5", Forwarded: "for=203.0.113.5;proto=https", ...HTTPS };
    expect(read(address, sent)).toEqual({ address, isSecure: false, forwarding: "ignored" });
  },
);

test.each(["10.9.8.7", "192.0.2.1", "2001:db8:5::1", "::ffff:10.9.8.7", "::ffff:a09:807", "127.0.0.1"])(
  "the forwarding headers of a trusted proxy at %s are used",
  (proxy) => {
    expect(read(proxy, { "X-Forwarded-For": "203.0.113.5", ...HTTPS })).toEqual({
      address: "203.0.113.5",
      isSecure: true,
      forwarding: "used",
    });
  },
);

test.each<[what: string, client: string, values: readonly string[]]>([
  ["one address", "203.0.113.5", ["203.0.113.5"]],
  ["an IPv6 address", "2001:db9::5", ["2001:db9::5", "[2001:db9::5]:4711"]],
  ["forged entries before the client", "203.0.113.5", ["1.1.1.1, 203.0.113.5"]],
  ["a chain of proxies", "203.0.113.5", ["1.1.1.1, 203.0.113.5, 10.0.0.2", "203.0.113.5, ::ffff:10.0.0.2"]],
  ["only proxies", "10.0.0.2", ["10.0.0.2, 10.0.0.3"]],
  ["an invalid entry", "10.0.0.1", ["me", "203.0.113.5,", "me[2001:db9::5]", "203.0.113.5/32"]],
])("a trusted proxy names the client in X-Forwarded-For: %s", (_what, address, values) => {
  for (const value of values)
    expect([value, read("10.0.0.1", { "X-Forwarded-For": value })]).toEqual([
      value,
      { address, isSecure: false, forwarding: "used" },
    ]);
});

test.each<[isSecure: boolean, values: readonly (string | string[])[]]>([
  [true, ["https", " HTTPS "]],
  [false, ["http", "https, http", ["https", "http"], "http, https", "https1"]],
])("a trusted proxy makes a request secure: %p, with X-Forwarded-Proto %j", (isSecure, values) => {
  for (const value of values)
    expect([value, read("10.0.0.1", { "X-Forwarded-Proto": value })]).toEqual([
      value,
      { address: "10.0.0.1", isSecure, forwarding: "none" },
    ]);
});

test.each<[what: string, sent: Sent, isSecure: boolean]>([
  ["no header", {}, false],
  ["only X-Forwarded-For", { "X-Forwarded-For": "203.0.113.5" }, false],
  ["only Via", { Via: "1.1 proxy" }, false],
  ["X-Forwarded-Proto: http", { "X-Forwarded-Proto": "http" }, false],
  ["X-Forwarded-Proto: https", HTTPS, true],
])("a trusted proxy makes requests over TLS or loopback secure only with https: %s", (...row) => {
  const [_what, sent, isSecure] = row;
  expect(read("10.0.0.1", sent, { protocol: "https" }).isSecure).toBe(isSecure);
  expect(read("127.0.0.1", sent).isSecure).toBe(isSecure);
});

test.each<[what: string, sent: Sent]>([
  ["alone", {}],
  ["with X-Forwarded-Proto: https", HTTPS],
  ["with X-Forwarded-For", { "X-Forwarded-For": "203.0.113.5" }],
  ["with both", { "X-Forwarded-For": "203.0.113.5", ...HTTPS }],
])("Forwarded from a trusted proxy hides the client, and makes the request insecure: %s", (_what, sent) => {
  for (const Forwarded of ["for=203.0.113.5;proto=https", "for=203.0.113.5", "for=_hidden", ";", ""]) {
    for (const protocol of ["http", "https"] as const) {
      expect(read("127.0.0.1", { Forwarded, ...sent }, { protocol })).toEqual({
        address: "127.0.0.1",
        isSecure: false,
        forwarding: "used",
      });
    }
  }
});

test.each<[isAccepted: boolean, texts: readonly string[]]>([
  [true, ["10.0.0.1", "0.0.0.0/0", "::1", "2001:db8::/32", "::ffff:10.0.0.0/104", "10.0.0.0/32"]],
  [false, ["", "proxy.example.com", "10.0.0", "[::1]", "10.0.0.1:80", " 10.0.0.1"]],
  [false, ["10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8/8", "::/129"]],
])("validateBlock accepts: %p, %j", (isAccepted, texts) => {
  const refusal = /^".*" (?:is not an IP address or a CIDR block|has a prefix that is longer)/;
  for (const text of texts)
    if (isAccepted) expect(validateBlock(text)).toBe(text);
    else expect(() => validateBlock(text)).toThrow(refusal);
});
