/** The inspector of the protocol's own project accepts `todo mcp` and `/mcp`. */
import { afterAll, describe, expect, test } from "bun:test";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { TOOL_DEFINITIONS } from "../src/mcp/tools.ts";
import { ROOT } from "./command.ts";
import { installPackages, runInstalled } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

const BIN = join(ROOT, "bin/todo");

const packages = await installPackages("@modelcontextprotocol/inspector@2.12.0");
const folder = packages.folder ?? "";
afterAll(async () => {
  if (packages.folder !== undefined) await rm(packages.folder, { recursive: true });
});

const start = () => startService({ mcp: createMcpEndpoint({ version: "1" }), network: { onLoopback: true } });

describe.skipIf(skipFor(packages.whyMissing))("the inspector", () => {
  test.each(["legacy", "modern"].flatMap((era) => ["stdio", "http"].map((way) => [way, era] as const)))(
    "works over %s with the %s protocol",
    async (way, era) => {
      await using service = start();
      const target =
        way === "http"
          ? ["--transport", "http", "--server-url", `${service.url}/mcp`]
          : ["-e", `TODO_URL=${service.url}`, "--transport", "stdio", BIN, "mcp"];
      const inspect = async (...args: readonly string[]): Promise<string> => {
        const flags = ["--cli", ...target, "--protocol-era", era, "--format", "json", "--quiet"];
        const { code, out, error } = await runInstalled(
          folder,
          "node_modules/.bin/mcp-inspector",
          ...flags,
          ...args,
        );
        expect([args, code, code === 0 ? "" : error]).toEqual([args, 0, ""]);
        return out;
      };
      const listed = await inspect("--method", "tools/list", "--strict");
      for (const { name } of TOOL_DEFINITIONS) expect(listed).toContain(`"${name}"`);
      const call = ["--method", "tools/call", "--tool-name"];
      const added = await inspect(
        ...call,
        "add_todos",
        "--tool-args-json",
        '{"todos":[{"title":"buy milk"}]}',
      );
      expect(added).toContain('"buy milk"');
      expect(await inspect(...call, "set_done", "--tool-args-json", '{"ids":["1"],"done":true}')).toContain(
        "true",
      );
      expect(await inspect("--method", "resources/read", "--uri", "todo://todos")).toContain("buy milk");
      await inspect(...call, "delete_todos", "--tool-args-json", '{"ids":["1"]}');
      expect(await (await service.send("GET", "/api/todos")).json()).toEqual([]);
    },
    300_000,
  );
});
