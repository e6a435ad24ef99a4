import { describe, expect, test } from "bun:test";
import { fileURLToPath } from "node:url";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { readPage } from "./docs.ts";
import { mcpSender, startStdioClient } from "./mcp-client.ts";
import { startService } from "./service.ts";

const BIN = fileURLToPath(new URL("../bin", import.meta.url));
const page = readPage("docs/how-to/assistants.md");
const blocks = page.blocks.filter(({ language }) => language === "json");

interface Entry {
  readonly type?: string;
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly headers?: Record<string, string>;
}

const entries = blocks.flatMap(({ text }) => {
  const { mcpServers, servers = mcpServers }: Record<string, Record<string, Entry>> = JSON.parse(text);
  return Object.values(servers ?? {});
});

/** Replaces what the assistant or the reader replaces. */
const filled = (values: Readonly<Record<string, string>>, url: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      value.replace("http://127.0.0.1:3000", url).replace(/\$\{[\w:-]+\}|YOUR_TOKEN/, "t0ken"),
    ]),
  );

describe("docs/how-to/assistants.md", () => {
  test("has valid JSON for every assistant, over stdio and over HTTP", () => {
    expect(entries).toHaveLength(blocks.length);
    expect(entries.filter(({ command }) => command !== undefined)).toHaveLength(2);
    expect(entries.filter(({ url }) => url !== undefined)).toHaveLength(1);
  });

  test("names a command that starts, with the variables that it reads", async () => {
    await using service = startService();
    for (const { command = "", args = [], env = {} } of entries.filter(({ url }) => url === undefined)) {
      const variables = { ...filled(env, service.url), PATH: `${BIN}:${process.env.PATH}` };
      await using client = await startStdioClient("2025-11-25", variables, [command, ...args]);
      const { result } = await client.request("tools/list");
      expect([command, args, result?.tools]).toEqual(["todo", ["mcp"], expect.arrayContaining([])]);
    }
  });

  test("names a URL that responds, with headers that it accepts", async () => {
    await using service = startService({ mcp: createMcpEndpoint({ version: "1" }) });
    for (const { url = "", headers = {} } of entries.filter(({ command }) => command === undefined)) {
      const address = filled({ url }, service.url).url ?? "";
      const send = mcpSender("2025-11-25", address, filled(headers, service.url));
      expect([address, (await send("tools/list")).status]).toEqual([`${service.url}/mcp`, 200]);
    }
  });

  test("lists exactly the tools that exist", async () => {
    await using service = startService({ mcp: createMcpEndpoint({ version: "1" }) });
    const response = await mcpSender("2025-11-25", `${service.url}/mcp`)("tools/list");
    const { result }: { result: { tools: { name: string }[] } } = JSON.parse(await response.text());
    const documented = [...page.text.matchAll(/^\| `(\w+)` \|.*\|.*\|$/gm)].map(([, name]) => name);
    expect(documented).toEqual(result.tools.map(({ name }) => name));
  });
});
