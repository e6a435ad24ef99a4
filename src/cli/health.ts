import type { Command } from "commander";
import { type Flags, optionFor, readAddress, SETTINGS, UsageError } from "./config.ts";

const ANSWER_WITHIN_MS = 3000;

/** Adds `todo health`: containers have no curl. */
export function addHealthCommand(program: Command): void {
  program
    .command("health")
    .description("Say whether the server on this machine answers: exit code 0, or 1 and why not.")
    .addOption(optionFor(SETTINGS.host))
    .addOption(optionFor(SETTINGS.port))
    .addOption(optionFor(SETTINGS.tlsCert))
    .addOption(optionFor(SETTINGS.tlsKey))
    .option("--ready", "ask whether it is ready too: its store answers, and it is not about to stop")
    .action(async (flags: Flags) => {
      const { host, port, tls } = readAddress(flags, process.env);
      if (port === 0) throw new UsageError("port 0 is whichever is free: name the one that the server took");
      const scheme = tls === undefined ? "http" : "https";
      const url = `${scheme}://${within(host)}:${port}/${flags.ready === true ? "readyz" : "livez"}`;
      const trouble = await troubleAt(url);
      if (trouble === undefined) return;
      process.stderr.write(`todo: ${url}: ${trouble}\n`);
      process.exitCode = 1;
    });
}

/** The address to reach it at from this machine, as a URL has it. */
function within(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  const bare = host.replace(/^\[(.*)\]$/, "$1");
  if (bare === "::") return "[::1]";
  return bare.includes(":") ? `[${bare}]` : bare;
}

async function troubleAt(url: string): Promise<string | undefined> {
  try {
    const response = await fetch(url, {
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      // The certificate is for the name that clients know, not for this machine's own; nothing secret is sent.
      tls: { rejectUnauthorized: false },
    });
    return response.ok ? undefined : `it answers ${response.status}: ${await response.text()}`;
  } catch (error) {
    if (!(error instanceof Error)) return String(error);
    return "code" in error && error.code === "ECONNREFUSED" ? "nothing listens there" : error.message;
  }
}
