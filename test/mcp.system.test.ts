/** The conformance suite of the protocol's own project accepts `/mcp`. */
import { describe, expect, test } from "bun:test";
import { createMcpEndpoint } from "../src/mcp/http.ts";
import { ended, runIn } from "./command.ts";
import { installPackages } from "./npm-install.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

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

const packages = await installPackages(PACKAGE);
const folder = packages.folder ?? "";

const start = () => startService({ mcp: createMcpEndpoint({ version: "1" }), network: { onLoopback: true } });

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
      const commandLine = [...program, "server", ...options];
      const { stdout, stderr } = await ended(runIn(folder, commandLine, { HOME: folder }));
      const output = Bun.stripANSI(stdout + stderr);
      const failed = [...output.matchAll(/^\S+ \[([\w-]+) *\] FAILURE/gm)].map(([, check]) => check);
      expect([output, failed]).toEqual([
        expect.stringMatching(/^Passed: [1-9]/m),
        NEED_FIXTURES[scenario] ?? [],
      ]);
    },
    300_000,
  );
});
