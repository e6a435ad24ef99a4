import { expect, test } from "bun:test";
import { whereToOpen } from "./first-key.ts";

const HTTPS_ADVICE =
  "To open the list in a browser, set --tls-cert and --tls-key, or use a proxy that terminates TLS.";

test.each([
  ["loopback", "http://127.0.0.1:3000", { onLoopback: true }, "Open http://127.0.0.1:3000 in a browser."],
  [
    "a host name of loopback",
    "http://myhost:3000",
    { onLoopback: true },
    "Open http://myhost:3000 in a browser.",
  ],
  [
    "all addresses",
    "http://0.0.0.0:3000",
    {},
    "Open http://127.0.0.1:3000 in a browser on this machine. Other machines need HTTPS.",
  ],
  [
    "all IPv6 addresses",
    "http://[::]:3000",
    {},
    "Open http://[::1]:3000 in a browser on this machine. Other machines need HTTPS.",
  ],
  [
    "all addresses with TODO_ALLOW_BASIC_OVER_HTTP",
    "http://0.0.0.0:3000",
    { access: { allowBasicOverHttp: true } },
    "Open http://127.0.0.1:3000 in a browser on this machine.",
  ],
  [
    "all addresses with TLS",
    "https://0.0.0.0:3000",
    {},
    "Open https://127.0.0.1:3000 in a browser on this machine.",
  ],
  ["one address with TLS", "https://192.0.2.1:3000", {}, "Open https://192.0.2.1:3000 in a browser."],
  ["one address", "http://192.0.2.1:3000", {}, HTTPS_ADVICE],
  [
    "one address with TODO_ALLOW_BASIC_OVER_HTTP",
    "http://192.0.2.1:3000",
    { access: { allowBasicOverHttp: true } },
    "Open http://192.0.2.1:3000 in a browser.",
  ],
])(
  "whereToOpen recommends an address that accepts the key, for a server on %s",
  (_what, url, given, advice) => {
    expect(whereToOpen(url, { onLoopback: false, access: { allowBasicOverHttp: false }, ...given })).toBe(
      advice,
    );
  },
);
