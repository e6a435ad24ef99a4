/** Clients made with old and new versions of the protocol's SDK use `todo mcp` and `/mcp`, and the conformance suite of the protocol accepts `/mcp`. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { TOOL_DEFINITIONS } from "../src/mcp/tools.ts";
import { ended, ROOT, runIn, succeed } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

setDefaultTimeout(300_000);

const SDK = "@modelcontextprotocol/sdk";
const packages = await installPackages(
  ...["1.0.4", "1.9.0", "1.11.0", "1.32.2"].map((version) => `sdk-${version}@npm:${SDK}@${version}`),
  "@modelcontextprotocol/client@2.4.0",
);
const folder = packages.folder ?? "";

const SECOND = "@modelcontextprotocol/client";
const HTTP_VERSIONS = ["1.11.0", "1.32.2", "2.4.0"];

/** The versions of the SDK, and the modules of its client. The versions before 1.10 have no Streamable HTTP. */
const SDKS = [
  ...["1.0.4", "1.9.0", "1.11.0", "1.32.2"].map((version) => ({
    version,
    client: `sdk-${version}/client/index.js`,
    stdio: `sdk-${version}/client/stdio.js`,
    http: `sdk-${version}/client/streamableHttp.js`,
  })),
  { version: "2.4.0", client: SECOND, stdio: `${SECOND}/stdio`, http: SECOND },
];

const programOf = (client: string, transport: string): string => `
import { Client } from "${client}";
${transport}
const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(transport);
const call = async (name, given) => JSON.parse((await client.callTool({ name, arguments: given })).content[0].text);
const { tools } = await client.listTools();
const added = await call("add_todos", { todos: [{ title: "buy milk" }, { title: "buy bread" }] });
const found = await call("find_todos", { text: "bread buy" });
const marked = await call("set_done", { ids: [found.todos[0].id], done: true });
const deleted = await call("delete_todos", { ids: [1, "7"] });
const { contents } = await client.readResource({ uri: "todo://todos" });
console.log(JSON.stringify([tools.map(({ name }) => name), added, found, marked, deleted, JSON.parse(contents[0].text)]));
await client.close();
`;

async function runClient(url: string, client: string, transport: string): Promise<void> {
  await writeFile(join(folder, "program.js"), programOf(client, transport));
  const out = await succeed(runIn(folder, ["node", "program.js"], { HOME: folder }));
  const milk = { id: "1", title: "buy milk", done: false };
  const bread = { id: "2", title: "buy bread", done: false };
  const marked = { ...bread, done: true };
  expect(JSON.parse(out)).toEqual([
    TOOL_DEFINITIONS.map(({ name }) => name),
    { todos: [milk, bread] },
    { todos: [bread], matches: 1 },
    { todos: [marked], notFound: [] },
    { deleted: ["1"], notFound: ["7"] },
    { todos: [marked], matches: 1 },
  ]);
  expect(await (await fetch(`${url}/api/todos`)).json()).toHaveLength(1);
}

describe.skipIf(skipFor(packages.whyMissing))("a client of the SDK", () => {
  test.each(SDKS)("of version $version uses todo mcp", async ({ client, stdio }) => {
    await using service = startService();
    const env = { PATH: process.env.PATH, TODO_URL: service.url };
    const options = { command: join(ROOT, "bin/todo"), args: ["mcp"], env };
    await runClient(
      service.url,
      client,
      `import { StdioClientTransport } from "${stdio}";
      const transport = new StdioClientTransport(${JSON.stringify(options)});`,
    );
  });

  test.each(SDKS.filter(({ version }) => HTTP_VERSIONS.includes(version)))(
    "of version $version uses /mcp",
    async ({ client, http }) => {
      await using service = startService({ mcp: createMcpEndpoint({ version: "1" }) });
      await runClient(
        service.url,
        client,
        `import { StreamableHTTPClientTransport } from "${http}";
        const transport = new StreamableHTTPClientTransport(new URL("${service.url}/mcp"));`,
      );
    },
  );
});

/** This version of the conformance suite is the first that knows 2026-07-28. */
const PACKAGE = "@modelcontextprotocol/conformance@0.2.0-alpha.12";

/** The suite judges versions from 2025-06-18 on. */
const HANDSHAKE = ["2025-06-18", "2025-11-25"];
/** The scenarios that need no tools, prompts or resources made for the suite, with the versions that have them. */
const SCENARIOS: Readonly<Record<string, readonly string[]>> = {
  "server-initialize": HANDSHAKE,
  ping: HANDSHAKE,
  "tools-list": [...HANDSHAKE, "2026-07-28"],
  "resources-list": [...HANDSHAKE, "2026-07-28"],
  "dns-rebinding-protection": ["2025-11-25", "2026-07-28"],
  "http-header-validation": ["2026-07-28"],
  "sep-2164-resource-not-found": ["2026-07-28"],
  "server-stateless": ["2026-07-28"],
  caching: ["2026-07-28"],
};

/** The checks within these scenarios that do need such tools or prompts. */
const NEED_FIXTURES: Readonly<Record<string, readonly string[]>> = {
  "server-stateless": [
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
  ],
  caching: ["sep-2549-prompts-list-caching-hints"],
};

const suite = await installPackages(PACKAGE);

describe.skipIf(skipFor(suite.whyMissing))("the conformance suite", () => {
  const cases = Object.entries(SCENARIOS).flatMap(([scenario, versions]) =>
    versions.map((version) => [scenario, version] as const),
  );
  test.each(cases)("passes %s with version %s", async (scenario, version) => {
    await using service = startService({
      mcp: createMcpEndpoint({ version: "1" }),
      network: { onLoopback: true },
    });
    // With Bun, because the suite needs a newer Node than this project.
    const program = [process.execPath, "node_modules/@modelcontextprotocol/conformance/dist/index.js"];
    const options = ["--url", `${service.url}/mcp`, "--scenario", scenario, "--spec-version", version];
    const commandLine = [...program, "server", ...options];
    const { stdout, stderr } = await ended(
      runIn(suite.folder ?? "", commandLine, { HOME: suite.folder ?? "" }),
    );
    const output = Bun.stripANSI(stdout + stderr);
    const failed = [...output.matchAll(/^\S+ \[([\w-]+) *\] FAILURE/gm)].map(([, check]) => check);
    expect([output, failed]).toEqual([
      expect.stringMatching(/^Passed: [1-9]/m),
      NEED_FIXTURES[scenario] ?? [],
    ]);
  });
});
