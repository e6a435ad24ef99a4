/** Clients made with old and new versions of the protocol's SDK use `todo mcp` and `/mcp`. */
import { describe, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { TOOL_DEFINITIONS } from "../src/mcp/tools.ts";
import { ROOT, runIn, succeed } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

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

/** Returns a program that adds, finds, marks and deletes to-dos, and prints what it received. */
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

/** Runs a program with this client, and compares what it received with what the service has. */
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
