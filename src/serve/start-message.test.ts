import { expect, test } from "bun:test";
import { join } from "node:path";
import { runTodo } from "../../test/command.ts";
import { skipFor } from "../../test/skip.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { openTerminal, whyNoTerminal } from "../../test/terminal.ts";
import { describeAddresses, whereToOpen } from "./start-message.ts";

const IN_MEMORY =
  "The data and the signed-in browsers are in memory and end with the server. To keep them, add --store sqlite:todos.db";
const folder = temporaryFolder();

test.skipIf(skipFor(whyNoTerminal))(
  "npm start on a terminal prints addresses that work, the demo credentials, and that data is stored only in memory",
  async () => {
    await using terminal = openTerminal("exec npm start -- --port 0");
    await terminal.shows(IN_MEMORY);
    const shown = terminal.shown();
    const url = /^To-dos: +(http:\/\/127\.0\.0\.1:\d+)\/$/m.exec(shown)?.[1] ?? "";
    const password = /^demo-password=(\w{24})$/m.exec(shown)?.[1];
    const token = /^demo-token=(todo_\w{49})$/m.exec(shown)?.[1];
    expect(shown).toMatch(new RegExp(`^API docs: +${url}/docs$`, "m"));
    expect(shown).toMatch(
      new RegExp(`^API keys: +${url}/admin/keys {2}\\(user admin, with the password below\\)$`, "m"),
    );
    expect(shown.indexOf("API keys:")).toBeLessThan(shown.indexOf("No credentials are configured"));
    const headers = { Accept: "text/html", Authorization: `Basic ${btoa(`admin:${password}`)}` };
    for (const [path, title] of [
      ["/", "To-dos"],
      ["/docs", "API"],
      ["/admin/keys", "API keys"],
    ] as const) {
      const response = await fetch(url + path, { headers });
      expect([response.status, await response.text()]).toEqual([200, expect.stringContaining(title)]);
    }
    const whoami = await fetch(`${url}/api/whoami`, { headers: { Authorization: `Bearer ${token}` } });
    expect(await whoami.text()).toBe("demo");
  },
);

test.skipIf(skipFor(whyNoTerminal))(
  "todo serve on a terminal with a file and a key prints only the pages that work",
  async () => {
    const store = `sqlite:${join(folder, "todos.db")}`;
    await using create = runTodo(["keys", "create", "phone", "--store", store]);
    expect(await create.exited).toBe(0);
    await using terminal = openTerminal(`exec bin/todo serve --port 0 --store "${store}"`);
    await terminal.shows("API docs:");
    terminal.type("\x03");
    expect(await terminal.exited).toBe(0);
    expect(terminal.shown()).toContain("To-dos:");
    expect(terminal.shown()).not.toMatch(/API keys:|demo-|in memory/);
  },
);

test("todo serve without a terminal prints the credentials only", async () => {
  await using server = runTodo(["serve", "--port", "0"]);
  await server.url;
  server.kill("SIGTERM");
  expect(await server.exited).toBe(0);
  expect(server.stderr()).toStartWith(
    "\nNo credentials are configured. These work until the server stops:\n",
  );
  expect(server.stderr()).toEndWith("/admin/'\n\n");
  expect(server.stderr() + server.stdout()).not.toMatch(/To-dos:|in memory/);
});

const CHECKED = {
  access: { privateMode: false, allowBasicOverHttp: false },
  onLoopback: false,
  demo: undefined,
  hasUsers: true,
};

test.each([
  ["all addresses", "http://0.0.0.0:3000", {}, "http://127.0.0.1:3000", true],
  ["all IPv6 addresses", "http://[::]:3000", {}, "http://[::1]:3000", true],
  ["one address", "http://192.0.2.1:3000", {}, "http://192.0.2.1:3000", false],
  [
    "one address with TODO_ALLOW_BASIC_OVER_HTTP",
    "http://192.0.2.1:3000",
    { access: { privateMode: false, allowBasicOverHttp: true } },
    "http://192.0.2.1:3000",
    true,
  ],
  ["one address with TLS", "https://192.0.2.1", {}, "https://192.0.2.1", true],
  ["a host name of loopback", "http://myhost:3000", { onLoopback: true }, "http://myhost:3000", true],
])(
  "describeAddresses lists only addresses that accept requests, for a server on %s",
  (_what, listener, given, url, keys) => {
    const lines = [`To-dos:    ${url}/`, `API docs:  ${url}/docs`];
    if (keys) lines.push(`API keys:  ${url}/admin/keys`);
    const subject = { ...CHECKED, ...given };
    expect(describeAddresses(listener, subject)).toBe(`${lines.join("\n")}\n`);
  },
);

test("a private server that accepts no credentials over plain HTTP prints that it needs TLS, and no addresses", () => {
  const subject = { ...CHECKED, access: { privateMode: true, allowBasicOverHttp: false } };
  expect(describeAddresses("http://192.0.2.1:3000", subject)).toBe(
    "To open the list in a browser, set --tls-cert and --tls-key, or use a proxy that terminates TLS.\n",
  );
});

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
    { access: { privateMode: true, allowBasicOverHttp: true } },
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
    { access: { privateMode: true, allowBasicOverHttp: true } },
    "Open http://192.0.2.1:3000 in a browser.",
  ],
])(
  "whereToOpen recommends an address that accepts the key, for a server on %s",
  (_what, url, given, advice) => {
    expect(whereToOpen(url, { ...CHECKED, ...given })).toBe(advice);
  },
);
