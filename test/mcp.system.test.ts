/** Programs of the protocol's own project accept `todo mcp` and `/mcp`. */
import { afterAll, describe, expect, test } from "bun:test";
import { rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { TOOL_DEFINITIONS } from "../src/mcp/tools.ts";
import { run } from "./command.ts";
import { PROTOCOL_VERSIONS } from "./mcp-client.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

const BIN = fileURLToPath(new URL("../bin/todo", import.meta.url));
/** This version of the conformance suite is the first that knows 2026-07-28. */
const PACKAGES = [
  "@modelcontextprotocol/conformance@0.2.0-alpha.12",
  "@modelcontextprotocol/inspector@2.12.0",
];

const HANDSHAKE = ["2025-06-18", "2025-11-25"];
/** The scenarios that need no tools, prompts or resources made for the suite, with the versions that have them. */
const SCENARIOS: Readonly<Record<string, readonly string[]>> = {
  "server-initialize": HANDSHAKE,
  ping: HANDSHAKE,
  "tools-list": PROTOCOL_VERSIONS,
  "resources-list": PROTOCOL_VERSIONS,
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

const packages = await installPackages(...PACKAGES);
const folder = packages.folder ?? "";
afterAll(async () => {
  if (packages.folder !== undefined) await rm(packages.folder, { recursive: true });
});

const start = () => startService({ mcp: createMcpEndpoint({ version: "1" }), network: { onLoopback: true } });

/** Runs a program in the folder of the packages. Returns its exit code and its output. */
async function runPackage(...commandLine: readonly string[]) {
  await using command = run(["sh", "-c", 'cd "$0" && exec "$@"', folder, ...commandLine], { HOME: folder });
  return { code: await command.exited, out: command.stdout(), error: command.stderr() };
}

describe.skipIf(skipFor(packages.whyMissing))("the conformance suite", () => {
  const cases = Object.entries(SCENARIOS).flatMap(([scenario, versions]) =>
    versions.map((version) => [scenario, version] as const),
  );
  test.each(cases)(
    "passes %s with version %s",
    async (scenario, version) => {
      await using service = start();
      // With Bun, because the suite needs a newer Node than this project.
      const program = [process.execPath, "node_modules/@modelcontextprotocol/conformance/dist/index.js"];
      const options = ["--url", `${service.url}/mcp`, "--scenario", scenario, "--spec-version", version];
      const { out, error } = await runPackage(...program, "server", ...options);
      const output = Bun.stripANSI(out + error);
      const failed = [...output.matchAll(/^\S+ \[([\w-]+) *\] FAILURE/gm)].map(([, check]) => check);
      expect([output, failed]).toEqual([
        expect.stringMatching(/^Passed: [1-9]/m),
        NEED_FIXTURES[scenario] ?? [],
      ]);
    },
    300_000,
  );
});

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
        const { code, out, error } = await runPackage("node_modules/.bin/mcp-inspector", ...flags, ...args);
        expect([args, code, code === 0 ? "" : error]).toEqual([args, 0, ""]);
        return out;
      };
      const listed = await inspect("--method", "tools/list", "--strict");
      for (const { name } of TOOL_DEFINITIONS) expect(listed).toContain(`"${name}"`);
      const call = ["--method", "tools/call", "--tool-name"];
      const added = await inspect(...call, "add_todo", "--tool-arg", "title=buy milk");
      expect(added).toContain('"buy milk"');
      expect(await inspect(...call, "set_done", "--tool-args-json", '{"id":"1","done":true}')).toContain(
        "true",
      );
      expect(await inspect("--method", "resources/read", "--uri", "todo://todos")).toContain("buy milk");
      await inspect(...call, "delete_todo", "--tool-args-json", '{"id":"1"}');
      expect(await (await service.send("GET", "/api/todos")).json()).toEqual([]);
    },
    300_000,
  );
});
