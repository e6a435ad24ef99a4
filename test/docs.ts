import { existsSync, globSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { slugOf } from "../docs/slug.ts";
import { type Command, ROOT, run } from "./command.ts";
import { freePort } from "./free-port.ts";
import { copyRepository } from "./patched-copy.ts";
import { skipFor } from "./skip.ts";
import { isTool, whyMissing } from "./tools.ts";
import { until } from "./until.ts";

/** Ports that the pages name. Each run of a page uses free ports instead. */
const PORTS = /\b(?:3000|4000|5173|9090|9464)\b/g;

/** A command that runs until it is stopped. The next one of the page stops it first. */
const SERVICE = /^(?:\w+=\S+ )*(?:todo serve|npm start|npx bun server\.ts|node \w+\.mjs)(?: .*)?$/;
/** A web server that runs beside the service, in another terminal. */
const SITE = /^npx bun \S+ --port=\d+$/;

/** The first line of a block that is a file says its name: `// server.ts`, `# Caddyfile` or `<!-- live.html -->`. */
const FILE_NAME = /^(?:\/\/|#|<!--) ([\w.-]+)(?: -->)?\n/;

/** A fenced block of a page. The HTML comment before it is its marker. A block within an HTML comment runs like the others. */
export interface Block {
  readonly language: string;
  readonly text: string;
  readonly line: number;
  // How tests run the block: `not run: REASON`; `run by: FILE` in a system of its own; `needs: TOOL` only where it is installed;
  // `exits: CODE` expects this exit code; `waits: PATTERN` for a file that the server creates; `crash` first kills the server of
  // the page; `example: REASON` where the output differs from run to run.
  readonly marker: string | undefined;
  /** Whether only blank lines are between the previous block and this one. */
  readonly followsBlock: boolean;
}

export interface Page {
  readonly path: string;
  readonly text: string;
  readonly blocks: readonly Block[];
}

export function readPages(): readonly Page[] {
  return ["README.md", ...globSync("docs/**/*.md", { cwd: ROOT }).toSorted()].map(readPage);
}

export function readPage(path: string): Page {
  const text = readFileSync(join(ROOT, path), "utf8");
  return { path, text, blocks: blocksIn(text) };
}

function blocksIn(page: string): readonly Block[] {
  let previousEnd = -1;
  return [...page.matchAll(/^( *)```(\w*)\n([\s\S]*?)^\1```$/gm)].map((match) => {
    const [whole, indent = "", language = "", text = ""] = match;
    const before = page.slice(0, match.index);
    const block = {
      language,
      text: text.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
      line: before.split("\n").length,
      marker: /<!-- (.*?) -->\s*$/.exec(before)?.[1],
      followsBlock: previousEnd >= 0 && page.slice(previousEnd, match.index).trim() === "",
    };
    previousEnd = match.index + whole.length;
    return block;
  });
}

/** Returns what follows the name of a marker: `REASON` for `not run: REASON`. */
export function markerOf({ marker }: Block, name: string): string | undefined {
  return marker?.startsWith(`${name}: `) ? marker.slice(name.length + 2) : undefined;
}

export function commandsOf(page: string, part: string): string {
  const block = readPage(page).blocks.find(({ text }) => text.includes(part));
  if (block === undefined) throw new Error(`${page} has no block with ${part}`);
  return block.text;
}

export const isCommand = ({ language }: Block): boolean => language === "sh";

export interface RunOptions {
  /** Changes each block before it runs, for example to use other paths. */
  readonly changed?: (text: string) => string;
  /** Runs after the last block, while the servers still run. `usePorts` puts the ports of this run in place of the page's. */
  readonly whileRunning?: (usePorts: (text: string) => string) => Promise<void>;
}

/** Runs the commands of a page in one shell, in a clean copy. Returns what fails, or differs from the `text` block directly below. */
export async function runPage(page: Page, options: RunOptions = {}): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), "todo-docs-"));
  const results = await mkdtemp(join(tmpdir(), "todo-docs-results-"));
  let shell: Command | undefined;
  try {
    await copyRepository(folder);
    const ports = new Map<string, string>([["3000", String(await freePort())]]);
    for (const [port] of page.text.matchAll(PORTS))
      if (!ports.has(port)) ports.set(port, String(await freePort()));
    const usePorts = (text: string): string => text.replaceAll(PORTS, (port) => ports.get(port) ?? port);
    const { changed = (text) => text, whileRunning } = options;
    const steps = stepsOf(page, (text) => changed(usePorts(text)));
    const port = ports.get("3000") ?? "";
    const script = join(results, "script");
    await writeFile(script, scriptOf(steps, whileRunning === undefined ? "" : WAIT));
    shell = run(["bash", "-c", 'cd "$0" && exec bash "$1"', folder, script], {
      PATH: `${join(ROOT, "bin")}:${process.env.PATH}`,
      PORT: port,
      TODO_PORT: port,
      TODO_URL: `http://127.0.0.1:${port}`,
      RESULTS: results,
      npm_config_update_notifier: "false",
    });
    if (whileRunning !== undefined) {
      let hasEnded = false;
      shell.exited.then(() => {
        hasEnded = true;
      });
      await until(() => hasEnded || existsSync(join(results, "ready")), "the commands have run");
      if (!hasEnded) await whileRunning(usePorts);
      await writeFile(join(results, "end"), "");
    }
    await shell.exited;
    return await problemsOf(page, steps, results);
  } finally {
    await shell?.[Symbol.asyncDispose]();
    for (const name of ["service", "site"]) await stopServer(join(results, `${name}.group`));
    for (const each of [folder, results]) await rm(each, { recursive: true });
  }
}

interface Step {
  readonly block: Block;
  readonly script: string;
  readonly output: string | undefined;
}

function stepsOf({ path, blocks }: Page, changed: (text: string) => string): readonly Step[] {
  return blocks.flatMap((block, index): Step[] => {
    const name = FILE_NAME.exec(block.text)?.[1];
    if (!isCommand(block))
      return name === undefined
        ? []
        : [{ block, script: fileScript(name, changed(block.text)), output: undefined }];
    if ((markerOf(block, "not run") ?? markerOf(block, "run by")) !== undefined) return [];
    const tool = markerOf(block, "needs");
    if (tool !== undefined && isTool(tool) && skipFor(whyMissing(tool))) return [];
    const next = blocks[index + 1];
    const isOutput =
      next?.language === "text" && next.followsBlock && markerOf(next, "example") === undefined;
    return [
      {
        block,
        script: commandScript(
          block,
          changed(block.text.replace(/^(?:git clone .*\n)?npm ci(?: --omit=dev)?(?: && |\n)/, "")),
          path,
        ),
        output: isOutput ? changed(next.text) : undefined,
      },
    ];
  });
}

const fileScript = (name: string, text: string): string =>
  `cat >${name} <<'END_OF_FILE'\n${text}END_OF_FILE\n`;

function commandScript(block: Block, text: string, path: string): string {
  const exits = markerOf(block, "exits");
  if (exits !== undefined) return `code=0\n(\n${text}) || code=$?\n[ "$code" -eq ${exits} ]\n`;
  const file = markerOf(block, "waits");
  if (file !== undefined) return `until ls ${file} >/dev/null 2>&1; do sleep 0.05; done\n${text}`;
  const lines = text.trimEnd().split("\n");
  const last = lines.at(-1) ?? "";
  const isSite = SITE.test(last);
  if (!isSite && !SERVICE.test(last)) return text;
  const signal = block.marker === "crash" ? "KILL" : "TERM";
  if (last.includes("'")) throw new Error(`${path}:${block.line}: the command of a server has a quote`);
  return `${[...lines.slice(0, -1), `start_server ${isSite ? "site" : "service"} ${signal} '${last}'`].join("\n")}\n`;
}

/** Each job has a process group of its own, as in a terminal, so that a signal reaches npm and the server. */
const FUNCTIONS = `
set -eum
stop_server() {
  [ -e "$RESULTS/$1.group" ] || return 0
  kill -"$2" -- "-$(cat "$RESULTS/$1.group")" 2>/dev/null || true
  wait "$(cat "$RESULTS/$1.group")" 2>/dev/null || true
  rm "$RESULTS/$1.group"
}
start_server() {
  stop_server "$1" "$2"
  rm -f "$RESULTS/$1.log"
  (eval "exec env $3") >"$RESULTS/$1.log" 2>&1 </dev/null &
  echo "$!" >"$RESULTS/$1.group"
  until grep -qE '"msg":"listening"|^[^{]*http://' "$RESULTS/$1.log" 2>/dev/null; do
    kill -0 "$!" 2>/dev/null || { cat "$RESULTS/$1.log" >&2; return 1; }
    sleep 0.05
  done
}
curl() { command curl -sS "$@"; }
trap 'stop_server site TERM; stop_server service TERM' EXIT
`;

/** Keeps the servers until the test has used them. */
const WAIT = `
: >"$RESULTS/ready"
until [ -e "$RESULTS/end" ]; do sleep 0.05; done
`;

function scriptOf(steps: readonly Step[], end: string): string {
  const parts = steps.map(
    ({ block: { line }, script }) =>
      `exec >"$RESULTS/${line}.out" 2>"$RESULTS/${line}.err" </dev/null\n${script}echo done >"$RESULTS/${line}.done"\n`,
  );
  return [FUNCTIONS, ...parts, end].join("\n");
}

async function problemsOf(
  { path }: Page,
  steps: readonly Step[],
  results: string,
): Promise<readonly string[]> {
  const read = (name: string): Promise<string> => readFile(join(results, name), "utf8").catch(() => "");
  const problems: string[] = [];
  for (const { block, output } of steps) {
    const [out = "", err = "", done] = await Promise.all(
      ["out", "err", "done"].map((kind) => read(`${block.line}.${kind}`)),
    );
    const where = `${path}:${block.line}`;
    if (done === "") return [...problems, `${where} failed: ${out}${err}${await read("service.log")}`];
    if (output === undefined) continue;
    const printed = masked(joined(out || err));
    const expected = masked(joined(output));
    if (printed !== expected) problems.push(`${where} printed ${printed} instead of ${expected}`);
  }
  return problems;
}

/** curl ends no line, so outputs of several requests need not be on lines of their own. */
const joined = (text: string): string => text.replaceAll("\n", "").trim();

/** Replaces what differs from run to run. Here the port is in a variable, which errors then name instead of the flag. */
const masked = (text: string): string =>
  text
    .replaceAll("TODO_PORT", "--port")
    .replaceAll(/todo_\w{49}/g, "TOKEN")
    .replaceAll(/\b[0-9a-f]{16}-\d+\b/g, "POSITION")
    .replaceAll(/\b\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME");

async function stopServer(file: string): Promise<void> {
  const group = Number(await readFile(file, "utf8").catch(() => "0"));
  if (group === 0) return;
  try {
    process.kill(-group, "SIGKILL");
  } catch (error) {
    // It has ended.
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

/** Returns the anchors of a page's headings, as GitHub makes them. */
export function anchorsIn(page: string): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const [, heading = ""] of page.replaceAll(/^ *```[\s\S]*?^ *```$/gm, "").matchAll(/^#+ (.+)$/gm)) {
    const slug = slugOf(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1"));
    let anchor = slug;
    for (let n = 1; anchors.has(anchor); n += 1) anchor = `${slug}-${n}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Returns the targets of a page's relative links, without those in blocks and code. */
export function relativeLinks(page: string): readonly string[] {
  const prose = page.replaceAll(/^ *```[\s\S]*?^ *```$/gm, "").replaceAll(/`[^`\n]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = ""]) => target)
    .filter((target) => !/^\w+:/.test(target));
}
