import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { greet, mint, whoami } from "../../test/credentials.ts";
import { skipFor } from "../../test/skip.ts";
import { filesIn, temporaryFolder } from "../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { type Flags, readConfig } from "../config/config.ts";
import type { Environment } from "../config/setting-values.ts";
import { NOOP_LOG } from "../http/observability/log.ts";
import { openMemory } from "../storage/memory/store.ts";
import { openCredentials } from "./credentials.ts";
import { describeAddresses, describeMemory, listWarnings, whereToOpen } from "./start-message.ts";

const IN_MEMORY =
  "The data and the signed-in browsers are in memory and end with the server. To keep them, add --store sqlite:todos.db";
const folder = temporaryFolder();
const file = filesIn(folder);

test.skipIf(skipFor(whyNoTerminal))("npm start shows usable addresses and demo credentials", async () => {
  await using terminal = openTerminal("exec npm start -- --port 0");
  await terminal.shows(IN_MEMORY);
  const shown = terminal.shown();
  const found = (pattern: RegExp) => pattern.exec(shown)?.[1] ?? "";
  const url = found(/^To-dos: +(http:\/\/127\.0\.0\.1:\d+)\/$/m);
  const password = found(/^demo-password=(\w{24})$/m);
  expect(shown).toContain(`\nAPI docs:  ${url}/docs\n`);
  expect(shown).toContain(`\nAPI keys:  ${url}/admin/keys  (user admin, with the password below)\n`);
  expect(shown.indexOf("API keys:")).toBeLessThan(shown.indexOf("No credentials are configured"));
  expect(await greet(url, "admin", password)).toBe("Hello, admin!");
  expect(await whoami(url, found(/^demo-token=(todo_\w{49})$/m))).toBe("demo");
  const headers = { Accept: "text/html", Authorization: `Basic ${btoa(`admin:${password}`)}` };
  for (const [path, title] of [
    ["/", "To-dos"],
    ["/docs", "API"],
    ["/admin/keys", "API keys"],
  ] as const) {
    const response = await fetch(url + path, { headers });
    expect([response.status, await response.text()]).toEqual([200, expect.stringContaining(title)]);
  }
});

describe.skipIf(skipFor(whyNoTerminal))("on a terminal, a server in private mode without credentials", () => {
  const open = (store: string) =>
    openTerminal("bin/todo serve --private --port 0", { TODO_STORE: `sqlite:${join(folder, store)}` });

  test("offers to create the first API key, and shows its token once with the address", async () => {
    await using terminal = open("first.db");
    await terminal.shows("[y/N]");
    expect(terminal.shown()).not.toContain("listening");
    terminal.type("y\r");
    await terminal.shows("Sign in with the token.");
    const shown = terminal.shown();
    const url = /Open (http:\/\/\S+) in a browser/.exec(shown)?.[1] ?? "";
    const tokens = shown.match(/todo_\w{49}/g) ?? [];
    expect(tokens).toHaveLength(1);
    expect(shown).not.toMatch(/API keys:|demo-|in memory/);
    expect(await whoami(url, tokens[0] ?? "")).toBe("first");
    expect((await fetch(`${url}/api/todos`)).status).toBe(401);
  });

  test.each([
    ["n", "n\r"],
    ["Ctrl-C", "\x03"],
  ])("does not start after %s", async (_what, typed) => {
    await using terminal = open("refused.db");
    await terminal.shows("[y/N]");
    terminal.type(typed);
    expect(await terminal.exited).not.toBe(0);
    expect(terminal.shown()).not.toMatch(/listening|todo_\w{49}/);
  });
});

const NO_CLIENT = "no client is configured: /api/whoami rejects every request";
const NO_USER =
  "no user is configured: /admin/ rejects every request until you run todo users add and set --users-file";
const EASY = "the password of the admin user is easy to guess: use at least 8 characters, and not the name";
const REMEDY = "set --tls-cert and --tls-key, or --trusted-proxy if a proxy is in front";
const IN_CLEAR = `/admin/ accepts requests from this machine only, because passwords would be sent over plain HTTP: ${REMEDY}`;
const PRIVATE_IN_CLEAR = `the service accepts requests from this machine only, because credentials would be sent over plain HTTP: ${REMEDY}`;
const LIFTED = "are accepted over plain HTTP (TODO_ALLOW_BASIC_OVER_HTTP), where others can read them";
const REPLICAS =
  "each replica generates its own credentials, and rejects those of the others: create an API key with todo keys create, or set TODO_CLIENTS_FILE and TODO_USERS_FILE";

const admin = (TODO_ADMIN_USER: string, TODO_ADMIN_PASSWORD: string) => ({
  TODO_ADMIN_USER,
  TODO_ADMIN_PASSWORD,
});
const PAIR = admin("root", "s3cret words");
const clientsFile = file(`alice:${"0".repeat(64)}\n`);
const usersFile = file("bob:$2y$05$7IL2tOezyab7maxiTsBLY..4UosIOyqFIABzRuFkcvoNXI.tP//cK\n");
const postgres = { store: "postgres://h/d" };
const proxied = { clientsFile, trustedProxy: "10.0.0.1" };
const secured = { clientsFile, tlsCert: "c", tlsKey: "k" };
const lifted = { clientsFile, allowBasicOverHttp: true };

test.each<[what: string, flags: Flags, env: Environment, onLoopback: boolean, warnings: string[]]>([
  ["clients only", { clientsFile }, {}, true, [NO_USER]],
  ["users only", { usersFile }, {}, true, [NO_CLIENT]],
  ["a fixed user only", {}, PAIR, true, [NO_CLIENT]],
  ["nothing", {}, {}, true, []],
  ["a short password", { clientsFile }, admin("root", "s3cret"), true, [EASY]],
  ["the name as password", { clientsFile }, admin("administrator", "Administrator"), true, [EASY]],
  ["loopback", { clientsFile }, PAIR, true, []],
  ["all addresses", { clientsFile }, PAIR, false, [IN_CLEAR]],
  ["all addresses in private mode", { clientsFile, private: true }, PAIR, false, [PRIVATE_IN_CLEAR]],
  ["all addresses behind a proxy", proxied, PAIR, false, []],
  ["all addresses with TLS", secured, PAIR, false, []],
  ["passwords over plain HTTP", lifted, PAIR, false, [`passwords ${LIFTED}`]],
  ["tokens over plain HTTP", { ...lifted, private: true }, PAIR, true, [`passwords and tokens ${LIFTED}`]],
  ["replicas", postgres, {}, true, [REPLICAS]],
  ["replicas with a user", postgres, PAIR, true, [NO_CLIENT]],
])("listWarnings warns of %s", async (_what, flags, env, onLoopback, warnings) => {
  const config = readConfig(flags, env);
  const credentials = await openCredentials(config, openMemory().keys, NOOP_LOG, () => {});
  expect(listWarnings(credentials, config, onLoopback)).toEqual(warnings);
});

test("with API keys only, a start warns that no user is configured, and of no other replicas", async () => {
  const { keys } = openMemory();
  await mint(keys, "ci");
  const config = readConfig(postgres, {});
  const credentials = await openCredentials(config, keys, NOOP_LOG);
  expect(listWarnings(credentials, config, true)).toEqual([NO_USER]);
});

test("describeMemory warns of a store in memory only", () => {
  expect(["memory:", "sqlite:a.db"].map(describeMemory)).toEqual([`${IN_MEMORY}\n`, ""]);
});

const CHECKED = {
  access: { privateMode: false, allowBasicOverHttp: false },
  onLoopback: false,
  demo: undefined,
  hasUsers: true,
};

const LIFTED_ACCESS = { access: { privateMode: false, allowBasicOverHttp: true } };
const IPV4 = "http://127.0.0.1:3000";
const ADDRESS = "http://192.0.2.1:3000";

const HTTPS_ADVICE =
  "To open the list in a browser, set --tls-cert and --tls-key, or use a proxy that terminates TLS.";
const here = (url: string) => `Open ${url} in a browser on this machine.`;
const open = (url: string) => `Open ${url} in a browser.`;
const NEEDS = " Other machines need HTTPS.";
const NAME = "http://myhost:3000";
const IPV6 = "http://[::1]:3000";

test.each([
  ["loopback without users", IPV4, { onLoopback: true, hasUsers: false }, IPV4, false, open(IPV4)],
  ["a host name of loopback", NAME, { onLoopback: true }, NAME, true, open(NAME)],
  ["all addresses", "http://0.0.0.0:3000", {}, IPV4, true, here(IPV4) + NEEDS],
  ["all IPv6 addresses", "http://[::]:3000", {}, IPV6, true, here(IPV6) + NEEDS],
  ["all addresses over HTTP", "http://0.0.0.0:3000", LIFTED_ACCESS, IPV4, true, here(IPV4)],
  ["all addresses with TLS", "https://0.0.0.0", {}, "https://127.0.0.1", true, here("https://127.0.0.1")],
  ["one address", ADDRESS, {}, ADDRESS, false, HTTPS_ADVICE],
  ["one address over HTTP", ADDRESS, LIFTED_ACCESS, ADDRESS, true, open(ADDRESS)],
  ["one address with TLS", "https://192.0.2.1", {}, "https://192.0.2.1", true, open("https://192.0.2.1")],
])("a start on %s recommends only addresses and pages that accept requests", (...row) => {
  const [, listener, given, url, hasKeys, advice] = row;
  const lines = [`To-dos:    ${url}/`, `API docs:  ${url}/docs`];
  if (hasKeys) lines.push(`API keys:  ${url}/admin/keys`);
  const subject = { ...CHECKED, ...given };
  expect(describeAddresses(listener, subject)).toBe(`${lines.join("\n")}\n`);
  expect(whereToOpen(listener, subject)).toBe(advice);
});

test("a private server that accepts no credentials over plain HTTP prints that it needs TLS, and no addresses", () => {
  const subject = { ...CHECKED, access: { privateMode: true, allowBasicOverHttp: false } };
  expect(describeAddresses(ADDRESS, subject)).toBe(`${HTTPS_ADVICE}\n`);
});
