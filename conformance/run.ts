/** `todo-conformance URL …`: checks the server at a URL and prints the result of every rule. */
import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { sections } from "./rules.ts";
import { checkServer, type Options, type Report, type Result } from "./runner.ts";
import { Stopped, UnreachableError } from "./target-client.ts";

/** Runs the command. Returns its exit code: 0 passed, 1 not passed, 2 invalid arguments. */
async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  try {
    const options = parseArguments(args);
    const report = await checkServer({ ...options, signal });
    process.stdout.write(formatReport(options.baseUrl, report));
    return report.passed ? 0 : 1;
  } catch (error) {
    // The parser has already printed the message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof Stopped) return 130;
    if (!(error instanceof UnreachableError)) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    return 1;
  }
}

function parseArguments(args: readonly string[]): Options {
  const command = new Command("todo-conformance")
    .description("Checks the server at URL against every rule of the specification.")
    .argument("<url>", "URL of the server, such as http://localhost:3000")
    .addOption(new Option("--token <token>", "a known bearer token").env("CONFORMANCE_TOKEN"))
    .addOption(new Option("--user <name:password>", "valid Basic credentials").env("CONFORMANCE_USER"))
    .option("--client-name <name>", "the name of the token's client, compared exactly")
    .option(
      "--fresh",
      "also check the exact ids and the empty list; the server has just started, is empty and has no other clients",
    )
    .option("--seed <number>", "repeat the sequences of an earlier run", parseNumber)
    .option("--seconds <number>", "how long to generate sequences after the required ones", parseNumber, 8)
    .showSuggestionAfterError(false)
    .exitOverride()
    .parse(args, { from: "user" });
  const { token, user, ...rest } = command.opts<ParsedOptions>();
  const baseUrl = command.args[0] ?? "";
  // The parser would print the value in its message, and the value may be a credential.
  const reject = (reason: string) => command.error(`error: ${reason}`, { exitCode: 2 });
  if (!isBaseUrl(baseUrl)) reject("the URL must be http or https, without credentials, query or fragment");
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) reject("the token must be visible ASCII");
  if (user !== undefined && !/^[^:]+:/.test(user)) reject("the user must be NAME:PASSWORD");
  return {
    baseUrl,
    ...(token === undefined ? {} : { token }),
    ...(user === undefined ? {} : { user: parseUser(user) }),
    ...rest,
  };
}

interface ParsedOptions extends Pick<Options, "clientName" | "fresh" | "seed" | "seconds"> {
  readonly token?: string;
  readonly user?: string;
}

function parseNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError("It must be a number of at most nine digits.");
  return Number(text);
}

function isBaseUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return /^https?:$/.test(url.protocol) && url.username + url.search + url.hash === "";
}

/** Splits at the first colon, because a password may contain colons (RFC 7617, section 2). */
function parseUser(text: string): { name: string; password: string } {
  const colon = text.indexOf(":");
  return { name: text.slice(0, colon), password: text.slice(colon + 1) };
}

/** Formats the report: the rules by section, a reason below each rule that did not pass, and a summary. */
function formatReport(baseUrl: string, { results, passed, seed, requests, complete }: Report): string {
  const idWidth = Math.max(...results.map(({ rule }) => rule.id.length));
  const blocks = Object.entries(sections).map(([section, name]) => {
    const ofSection = results.filter(({ rule }) => rule.section === section);
    return [`${section}. ${name}`, ...ofSection.map((result) => formatResult(result, idWidth))].join("\n");
  });
  const count = (status: Result["status"]) =>
    `${results.filter((result) => result.status === status).length} ${status}`;
  const statuses = ["passed", "failed", "not judged", "skipped", "not observable"] as const;
  const counts = statuses.map(count).join(", ");
  const slow = complete ? "" : "The server was too slow for all required sequences.\n";
  const summary = `${baseUrl}: ${passed ? "PASSED" : "NOT PASSED"}: ${counts}`;
  return `${blocks.join("\n\n")}\n\n${slow}${requests} requests; --seed ${seed} repeats them\n${summary}\n`;
}

function formatResult(result: Result, idWidth: number): string {
  const { rule, status } = result;
  const mark = status === "passed" ? "✓" : status === "failed" ? "✗" : "–";
  const line = `  ${mark} ${rule.id.padEnd(idWidth)}  ${rule.description}`;
  if (result.status === "passed") return line;
  const commands = (result.commands ?? []).map((command) => `      ${command}\n`).join("");
  const shown =
    commands === "" ? "" : `\n    Section ${rule.section}. These commands for bash show it:\n${commands}`;
  return `${line}\n    ${" ".repeat(idWidth)}  ${result.reason}${shown.trimEnd()}`;
}

/** Stops at the first signal, and deletes the created to-dos before the process ends. */
async function runProcess(): Promise<void> {
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stop.abort());
  bypassProxiesOnLoopback(process.env);
  process.exitCode = await main(process.argv.slice(2), stop.signal);
}

/** Lets `fetch` reach a server on this machine directly, because HTTP_PROXY would send it, and the token, to the proxy. */
function bypassProxiesOnLoopback(env: NodeJS.ProcessEnv): void {
  const own = env.no_proxy || env.NO_PROXY;
  // Bun prefers the lower case, and knows blocks of addresses; Node does not.
  env.no_proxy = `${own ? `${own},` : ""}localhost,127.0.0.1,127.0.0.0/8,[::1],0.0.0.0,[::]`;
  env.NO_PROXY = env.no_proxy;
}

await runProcess();
