/** `npm run conformance -- URL …`: judges the server at a URL and prints the verdict on every rule. */
import { Command, CommanderError, Option } from "commander";
import { judge, type Options, type Report, type Verdict } from "./judge.ts";
import { sections } from "./rules.ts";
import { Unreachable } from "./service.ts";

/** Runs the command. Returns its exit code: 0 passed, 1 not passed, 2 not asked properly. */
export async function main(args: readonly string[]): Promise<number> {
  try {
    const options = parse(args);
    const report = await judge(options);
    process.stdout.write(print(options.base, report));
    return report.passed ? 0 : 1;
  } catch (error) {
    // The parser has already said its one line.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (!(error instanceof Unreachable)) throw error;
    process.stderr.write(`error: ${error.message}\n`);
    return 1;
  }
}

function parse(args: readonly string[]): Options {
  const command = new Command("conformance")
    .description("Judges the server at URL against every rule of the specification.")
    .argument("<url>", "where the server is, such as http://localhost:3000")
    .addOption(new Option("--token <token>", "a known bearer token").env("CONFORMANCE_TOKEN"))
    .addOption(new Option("--user <name:password>", "valid Basic credentials").env("CONFORMANCE_USER"))
    .option("--client-name <name>", "the name of the token's client, compared exactly")
    .option("--fresh", "the server has just started, is empty and ours alone: judge the exact counter too")
    .showSuggestionAfterError(false)
    .exitOverride()
    .parse(args, { from: "user" });
  const { token, user, ...rest } = command.opts<Given>();
  const base = command.args[0] ?? "";
  // Checked here and not by the parser, which would repeat a credential in its complaint.
  const refuse = (why: string) => command.error(`error: ${why}`, { exitCode: 2 });
  if (!isBase(base)) refuse("the URL must be http or https, without credentials or query");
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) refuse("the token must be visible ASCII");
  if (user !== undefined && !/^[^:]+:/.test(user)) refuse("the user must be NAME:PASSWORD");
  return {
    base,
    ...(token === undefined ? {} : { token }),
    ...(user === undefined ? {} : { user: pair(user) }),
    ...rest,
  };
}

interface Given extends Pick<Options, "clientName" | "fresh"> {
  readonly token?: string;
  readonly user?: string;
}

function isBase(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.username + url.search + url.hash === "";
}

/** Split at the first colon, as RFC 7617 does. */
function pair(text: string): { name: string; password: string } {
  const colon = text.indexOf(":");
  return { name: text.slice(0, colon), password: text.slice(colon + 1) };
}

/** The report as text: the rules by section, the reason beneath each that failed, and a summary. */
function print(base: string, { verdicts, passed }: Report): string {
  const widest = Math.max(...verdicts.map(({ rule }) => rule.id.length));
  const blocks = Object.entries(sections).map(([section, name]) => {
    const own = verdicts.filter(({ rule }) => rule.section === section);
    return [`${section}. ${name}`, ...own.map((verdict) => line(verdict, widest))].join("\n");
  });
  const count = (result: Verdict["result"]) =>
    `${verdicts.filter((verdict) => verdict.result === result).length} ${result}`;
  const counts = [count("passed"), count("failed"), count("not judged"), count("not observable")].join(", ");
  return `${blocks.join("\n\n")}\n\n${base}: ${passed ? "PASSED" : "NOT PASSED"}: ${counts}\n`;
}

function line(verdict: Verdict, width: number): string {
  const { rule, result } = verdict;
  const mark = result === "passed" ? "✓" : result === "failed" ? "✗" : "–";
  const says = `  ${mark} ${rule.id.padEnd(width)}  ${rule.says}`;
  return result === "passed" ? says : `${says}\n    ${" ".repeat(width)}  ${verdict.why}`;
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
