/**
 * Writes the files that are made from the program: two pages in docs/reference, and the error codes in errors.md and in
 * openapi.json. Also writes the addresses that follow from the repository's URL in package.json, and the ratios in the README
 * from bench/results.md. With --check, writes nothing, and fails if a file is out of date.
 *
 * @module
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Argument, Command, Option } from "commander";
import { repository } from "../package.json" with { type: "json" };
import { createProgram } from "../src/cli/program.ts";
import {
  CLIENT_SETTINGS,
  getVariables,
  SERVE_SETTING_GROUPS,
  type Setting,
  SettingOption,
} from "../src/config/settings.ts";
import { ERRORS } from "../src/error.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const MARK = "<!-- npm run docs writes this page. Do not edit it. -->";
const UNTIL_END = "<!-- npm run docs writes this page up to the next comment. -->";
const END = "<!-- What follows is written by hand. -->";

const read = (path: string): string => readFileSync(ROOT + path, "utf8");

/** Returns the texts of the files by path. */
async function generatedFiles(): Promise<Readonly<Record<string, string>>> {
  return {
    "docs/reference/command-line.md": await commandLinePage(),
    "docs/reference/configuration.md": configurationPage(),
    "docs/reference/errors.md": errorsPage(),
    "openapi.json": openApi(),
    "README.md": speed(clone("README.md")),
    "docs/tutorials/household.md": clone("docs/tutorials/household.md"),
    "package.json": manifest(),
    "deploy/alerts.yml": pageAddresses("deploy/alerts.yml"),
    "deploy/debian/environment": pageAddresses("deploy/debian/environment"),
  };
}

/** Replaces the list below the heading "Codes". */
function errorsPage(): string {
  const codes = Object.entries(ERRORS).map(
    ([name, { status, description }]) => `- ${status} ${code(name)}: ${description}`,
  );
  return replace(
    read("docs/reference/errors.md"),
    /(?<=\n## Codes\n\n.*\n\n)- .*?(?=\n\n)/s,
    codes.join("\n"),
  );
}

/** Replaces the paragraphs below the heading "Problem codes", which end the description, and the values of `code`. */
function openApi(): string {
  const paragraphs = Object.entries(ERRORS).map(
    ([name, { status, description }]) => `**\`${name}\`** (${status}): ${description}`,
  );
  const description = JSON.stringify(paragraphs.join("\n\n")).slice(1);
  const described = replace(read("openapi.json"), /(?<=## Problem codes\\n\\n).*"(?=,\n)/, description);
  const codes = Object.keys(ERRORS).map((name) => `\n${" ".repeat(14)}"${name}"`);
  return replace(
    described,
    /(?<="enum": \[)[^\]]*(?=\n +\],\n +"description": "The kind of problem, for programs)/,
    codes.join(),
  );
}

/** The repository's address, which is written in package.json only. */
const SOURCE = repository.url.replace(/^git\+|\.git$/g, "");

/** Replaces the address of the repository in a command. */
const clone = (page: string): string => replace(read(page), /(?<=git clone )\S+/, `${SOURCE}.git`);

/** Replaces the list below the heading "Speed" with the ratios of the benchmark. */
function speed(page: string): string {
  const sections = read("bench/results.md").split(/^## /m);
  const ratio = (workload: string, server: string): string => {
    const section = sections.find((each) => each.startsWith(`${workload}\n`)) ?? "";
    const row = section.split("\n").find((line) => line.startsWith(`| ${server} `));
    return row?.split("|")[3]?.trim() ?? "–";
  };
  const peers = {
    "Elysia with the same checks": "Elysia (Bun), equal",
    "Elysia with the same checks, tuned by hand": "Elysia (Bun), equal, prepared headers",
    "Go with the same checks": "Go, equal",
    Fastify: "Fastify",
    Express: "Express",
  };
  const workloads = ["GET one", "whoami", "POST", "GET list of 1,000"];
  const lines = Object.entries(peers)
    .map(([name, server]) => [name, workloads.map((workload) => ratio(workload, server))] as const)
    .filter(([, ratios]) => ratios.some((text) => text !== "–"))
    .map(([name, ratios]) => `- ${name}: ${ratios.join(", ")}`);
  return replace(page, /(?<=\n## Speed\n\n.*\n\n)- .*?(?=\n\n)/s, lines.join("\n"));
}

/** Replaces the addresses of the site (GitHub Pages) and of the issues. */
function manifest(): string {
  const [, owner = "", name = ""] = /([^/]+)\/([^/]+)$/.exec(SOURCE) ?? [];
  const homepage = replace(
    read("package.json"),
    /(?<="homepage": ").*(?=")/,
    `https://${owner}.github.io/${name}/`,
  );
  return replace(homepage, /(?<="bugs": ").*(?=")/, `${SOURCE}/issues`);
}

/** Replaces the repository's address in links to its pages. */
const pageAddresses = (path: string): string =>
  replace(read(path), /https:\/\/[^\s"]+(?=\/blob\/main\/)/g, SOURCE);

function replace(text: string, pattern: RegExp, replacement: string): string {
  if (!pattern.test(text)) throw new Error(`docs/build.ts does not find ${pattern}`);
  return text.replace(pattern, () => replacement);
}

function configurationPage(): string {
  const [, handwritten = ""] = read("docs/reference/configuration.md").split(END);
  const groups = SERVE_SETTING_GROUPS.map(
    ({ heading, settings }) => `## ${heading}\n\n${settingEntries(settings)}`,
  );
  return `# Configuration

This page lists every setting of \`todo serve\` and of the commands that talk to a running service.

${UNTIL_END}

- A flag overrides its variable. An empty variable counts as unset.
- If a setting has several variables, the first one that is set counts.
- Secrets have no flag, because other users of the machine can see the arguments of a process.
- Files that a setting names are UTF-8, with or without a byte order mark. A certificate and its key may have any text around their blocks.
- A switch is on as \`1\`, \`true\`, \`on\` or \`yes\`, and off as \`0\`, \`false\`, \`off\` or \`no\`. Its flag has no value.
- A duration is a number with a unit, such as \`30s\`, \`15m\`, \`24h\`, \`7d\` or \`2w\`.
- Lists are separated by commas.
- \`todo serve\` does not start with an unknown variable whose name begins with \`TODO_\`, because it may be a typing error.

${groups.join("\n\n")}

## Commands for a running service

${settingEntries(Object.values(CLIENT_SETTINGS))}

## Variables that other programs use, too

- \`NO_COLOR\`, \`FORCE_COLOR\`: Turn the colors on a terminal off or on.
- \`NODE_EXTRA_CA_CERTS\`: PEM file of certificate authorities that commands trust, besides those of the system.

${END}${handwritten}`;
}

const settingEntries = (settings: readonly Setting[]): string =>
  settings
    .map((setting) => entry(setting.flag, getVariables(setting), setting.default, setting.description))
    .join("\n");

/** Returns an item of a list: a flag with its variables and its default, or the variables if it has no flag. */
function entry(
  flag: string | undefined,
  variables: readonly string[],
  defaultValue: string | undefined,
  description: string,
): string {
  const [name = "", ...others] = [...(flag === undefined ? [] : [flag]), ...variables].map(code);
  if (defaultValue) others.push(`default ${code(defaultValue)}`);
  return `- ${name}${others.length === 0 ? "" : ` (${others.join(", ")})`}: ${sentence(description)}`;
}

async function commandLinePage(): Promise<string> {
  const program = await createProgram(process);
  const described = new Map<string, string>();
  const groups = Map.groupBy(visibleCommands(program), (command) => command.helpGroup().replace(/:$/, ""));
  const sections = [...groups].map(
    ([heading, commands]) =>
      `## ${heading}\n\n${commands.flatMap((command) => commandSections(command, "todo", described)).join("\n\n")}`,
  );
  return `# Command line

This page lists the commands of \`todo\` with their arguments and options.

${MARK}

Every command also has \`--help\`. “As above” means the nearest description above.

\`\`\`text
${textAfterHelp(program)}
\`\`\`

${sections.join("\n\n")}
`;
}

/**
 * Returns the section of a command, or those of its subcommands.
 * @param described the last entry above of each argument and option
 */
function commandSections(command: Command, above: string, described: Map<string, string>): string[] {
  const name = `${above} ${command.name()}`;
  const subcommands = visibleCommands(command);
  if (subcommands.length > 0) return subcommands.flatMap((one) => commandSections(one, name, described));
  const usage = [[name, ...command.aliases()].join("|"), ...command.registeredArguments.map(argumentTerm)];
  const isServer = command.options.some(({ helpGroupHeading }) => helpGroupHeading !== undefined);
  const parts = [
    `### ${code(usage.join(" "))}`,
    command.description(),
    isServer ? "" : entriesOf(command, described).join("\n"),
    isServer ? "Its options are the [settings](configuration.md)." : "",
    fenced(textAfterHelp(command)),
  ];
  return [parts.filter((part) => part !== "").join("\n\n")];
}

/** Returns the commands in the order of the help, without `help` itself. */
const visibleCommands = (command: Command): Command[] =>
  command
    .createHelp()
    .visibleCommands(command)
    .filter((one) => one.name() !== "help");

const argumentTerm = (argument: Argument): string => {
  const name = `${argument.name()}${argument.variadic ? "..." : ""}`;
  return argument.required ? `<${name}>` : `[${name}]`;
};

/** Returns an entry for each argument and option that is not as the last one above, and one entry for the other options. */
function entriesOf({ registeredArguments, options }: Command, described: Map<string, string>): string[] {
  const entries = [
    ...registeredArguments.flatMap((argument) =>
      argumentEntry(argument).map((text) => ({ term: argumentTerm(argument), text })),
    ),
    ...options.map((option) => ({ term: option.long ?? "", text: optionEntry(option) })),
  ];
  const news = entries.filter(({ term, text }) => described.get(term) !== text);
  const others = options.filter(({ long }) => !news.some(({ term }) => term === long));
  for (const { term, text } of news) described.set(term, text);
  return [
    ...news.map(({ text }) => text),
    ...(others.length === 0 ? [] : [`- As above: ${others.map(({ long }) => code(long ?? "")).join(", ")}.`]),
  ];
}

function argumentEntry(argument: Argument): string[] {
  const choices = argument.argChoices?.map(code).join(", ");
  const text = [argument.description, choices && `one of ${choices}`].filter(Boolean).join(": ");
  return text === "" ? [] : [`- ${code(argumentTerm(argument))}: ${sentence(text)}`];
}

function optionEntry(option: Option): string {
  const { setting } = option instanceof SettingOption ? option : {};
  const value = setting === undefined ? option.defaultValue : setting.default;
  return entry(
    option.flags,
    setting === undefined ? [] : getVariables(setting),
    typeof value === "string" ? value : undefined,
    setting?.description ?? option.description,
  );
}

/** Returns the text that the help of a command shows after its options. */
function textAfterHelp(command: Command): string {
  const pieces: string[] = [];
  command.configureOutput({ writeOut: (text) => pieces.push(text) });
  command.outputHelp();
  return pieces.slice(1).join("").trim();
}

const fenced = (text: string): string => (text === "" ? "" : `\`\`\`text\n${text}\n\`\`\``);

const code = (text: string): string => `\`${text}\``;

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

if (import.meta.main) {
  const isCheck = process.argv.includes("--check");
  for (const [path, text] of Object.entries(await generatedFiles())) {
    if (!isCheck) writeFileSync(ROOT + path, text);
    else if (read(path) !== text) {
      const lines = read(path).split("\n");
      const line = text.split("\n").findIndex((expected, index) => expected !== lines[index]);
      process.stderr.write(`${path}:${line + 1} is out of date: run npm run docs\n`);
      process.exitCode = 1;
    }
  }
}
