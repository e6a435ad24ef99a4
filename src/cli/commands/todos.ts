import { hash, randomBytes } from "node:crypto";
import { addAbortSignal } from "node:stream";
import type { Command } from "commander";
import { version } from "../../../package.json" with { type: "json" };
import { type Flags, readService } from "../../config/config.ts";
import { wholeNumber } from "../../config/setting-values.ts";
import { CLIENT_SETTINGS, SettingOption } from "../../config/settings.ts";
import { asUsageError, CommandError, interrupted, notFound, UsageError } from "../../config/usage-error.ts";
import { escapeControls } from "../../escape-controls.ts";
import { type ListQuery, type Todo, TodoApiError } from "../../sdk/client.ts";
import { createMatcher } from "../../search.ts";
import { decodeUtf8 } from "../../text.ts";
import { parseNewTodo, parseTodoId, type TodoId } from "../../todo.ts";
import { isBlank } from "../../validation.ts";
import {
  type CommandContext,
  createApi,
  describeError,
  runOnService,
  toCommandError,
} from "../client-command.ts";
import {
  type CommandProcess,
  getColumns,
  type Output,
  paint,
  printError,
  truncate,
} from "../terminal/output.ts";

const MIN_TITLE_COLUMNS = 10;
/** Enough to outlast a restart of the service. */
const RETRIES_OF_LINES = 8;

/** Adds the commands for the to-dos of a running service: `list`, `show`, `add`, `done`, `reopen`, `rm`, `watch`, `whoami`, `mcp`. */
export function addTodoCommands(program: Command, process: CommandProcess): void {
  const add = (name: string, description: string): Command =>
    program
      .command(name)
      .description(description)
      .addOption(new SettingOption(CLIENT_SETTINGS.url))
      .option("--json", "print lines of JSON");
  const addForIds = (name: string, description: string, work: Parameters<typeof forEachId>[2]): Command =>
    add(name, description)
      .argument("<id...>")
      .action((ids: string[], flags: Flags) =>
        runOnService(process, flags, (context) => forEachId(context, ids, work)),
      );

  add("list", "Show the to-dos, or those whose titles contain all the words.")
    .alias("ls")
    .argument("[word...]")
    .option("--open", "show only to-dos that are not done")
    .option("--done", "show only to-dos that are done")
    .option("--limit <n>", "show at most this many to-dos, the oldest ones")
    .action((words: string[], flags: Flags) =>
      runOnService(process, flags, (context) => list(context, words.join(" "))),
    );
  addForIds("show", "Show to-dos with their whole titles.", show);
  add("add", "Add a to-do with the words as its title. With -, add one for each line of standard input.")
    .argument("<title...>")
    .option("--batch <name>", "with -: skip lines that were added under this name in the last 24 hours")
    .action((words: string[], flags: Flags) =>
      runOnService(process, flags, (context) => addTodos(context, words)),
    );
  addForIds("done", "Mark to-dos as done.", (context, id) => setDone(context, id, true));
  addForIds("reopen", "Mark to-dos as not done.", (context, id) => setDone(context, id, false));
  addForIds("rm", "Delete to-dos.", remove).aliases(["remove", "delete"]);
  add(
    "watch",
    "Show the to-dos, then each change, until Ctrl-C. With --json, print only the changes.",
  ).action((flags: Flags) => runOnService(process, flags, watch));
  add("whoami", "Print the name of the client that the token belongs to.").action((flags: Flags) =>
    runOnService(process, flags, whoami),
  );
  program
    .command("mcp")
    .description(
      "Offer the to-dos of a running service to an assistant, which starts this command (Model Context Protocol).",
    )
    .addOption(new SettingOption(CLIENT_SETTINGS.url))
    .action((flags: Flags) => serveAssistant(process, flags));
}

async function list(context: CommandContext, text: string): Promise<void> {
  const { api, flags, printLine, isJson, signal } = context;
  const { stdout } = context.process;
  if (flags.open === true && flags.done === true)
    throw new UsageError("--open and --done are both set: keep one");
  const query: ListQuery = flags.open === flags.done ? {} : { done: flags.done === true };
  const limit = parseLimit(flags);
  const found = (await api.list(query, { signal })).todos.filter(createMatcher(text));
  const todos = found.slice(0, limit);
  if (isJson) {
    for (const todo of todos) printLine(todo);
    return;
  }
  printTodos(stdout, todos, describeEmpty(query, text));
  const more = paint("dim", "More to-dos follow. To show them, raise --limit.", stdout);
  if (found.length > todos.length) stdout.write(`${more}\n`);
}

function parseLimit({ limit }: Flags): number | undefined {
  if (typeof limit !== "string") return undefined;
  return asUsageError(`--limit "${limit}"`, () => wholeNumber(1, Number.MAX_SAFE_INTEGER)(limit));
}

function describeEmpty({ done }: ListQuery, text: string): string {
  if (text !== "") return "No to-dos match.";
  if (done === undefined) return "No to-dos yet. To add one, run: todo add buy milk";
  return done ? "No to-dos are done." : "No to-dos are open.";
}

async function show(context: CommandContext, id: TodoId): Promise<void> {
  const todo = await context.api.get(id, { signal: context.signal });
  printTodo(context, todo, { columns: Number.POSITIVE_INFINITY });
}

async function addTodos(context: CommandContext, words: readonly string[]): Promise<void> {
  const { api, flags, signal } = context;
  if (words.length === 1 && words[0] === "-") return addLines(context);
  if (flags.batch !== undefined)
    throw new UsageError("--batch requires lines on standard input: todo add - --batch NAME");
  const todo = await api.create(words.join(" "), { signal });
  printTodo(context, todo, { before: "added " });
}

async function addLines(context: CommandContext): Promise<void> {
  const { process, service, signal, printLine, isJson } = context;
  const { batch } = context.flags;
  if (batch === "") throw new UsageError("--batch needs a name that is not empty");
  const name = typeof batch === "string" ? batch : randomBytes(4).toString("hex");
  const input = await Array.fromAsync<Uint8Array>(addAbortSignal(signal, process.stdin));
  const titles = parseTitles(Buffer.concat(input));
  const api = createApi(service, { retries: RETRIES_OF_LINES });
  let added = 0;
  try {
    for (const [title, idempotencyKey] of withIdempotencyKeys(titles, name)) {
      const todo = await api.create(title, { idempotencyKey, signal });
      if (isJson) printLine(todo);
      added++;
    }
  } catch (error) {
    const failure = signal.aborted ? interrupted() : toCommandError(error, service);
    const next = `${added} of ${titles.length} lines were added; to add the rest, pass the same lines to: todo add - --batch ${name}`;
    throw new CommandError(`${failure.message}\n${next}`, failure.exitCode, { cause: error });
  }
  const before = batch === undefined ? "" : ", including those of earlier runs";
  if (!isJson) process.stdout.write(`added ${added} to-dos${before}\n`);
}

/** Returns the lines that are not blank. Checks all of them before the first one is sent. */
function parseTitles(bytes: Uint8Array): string[] {
  const text = asUsageError("nothing was added: standard input", () => decodeUtf8(bytes));
  return text.split(/\r?\n/).flatMap((title, at) => {
    if (isBlank(title)) return [];
    return asUsageError(`nothing was added: line ${at + 1}`, () => parseNewTodo({ title })).title;
  });
}

/** Yields each title with an idempotency key, made of the batch name, the title and how often the title came before. */
function* withIdempotencyKeys(
  titles: readonly string[],
  batch: string,
): Generator<readonly [title: string, key: string]> {
  const times = new Map<string, number>();
  for (const title of titles) {
    const time = (times.get(title) ?? 0) + 1;
    times.set(title, time);
    yield [title, hash("sha256", JSON.stringify([batch, title, time]))];
  }
}

async function setDone(context: CommandContext, id: TodoId, done: boolean): Promise<void> {
  printTodo(context, await context.api.setDone(id, done, { signal: context.signal }));
}

async function remove({ api, signal, printLine }: CommandContext, id: TodoId): Promise<void> {
  await api.delete(id, { signal });
  printLine({ id: String(id) }, () => `deleted ${id}`);
}

/** Calls `work` for every id, then throws a CommandError that lists the ids without a to-do. */
async function forEachId(
  context: CommandContext,
  texts: readonly string[],
  work: (context: CommandContext, id: TodoId) => Promise<void>,
): Promise<void> {
  const ids = texts.map((text) => {
    const id = parseTodoId(text);
    if (id === undefined)
      throw new UsageError(`${JSON.stringify(text)} is not an id: run todo list to see the ids`);
    return id;
  });
  const absent: TodoId[] = [];
  for (const id of ids) {
    try {
      await work(context, id);
    } catch (error) {
      if (!(error instanceof TodoApiError && error.code === "todo_not_found")) throw error;
      absent.push(id);
    }
  }
  if (absent.length > 0)
    throw notFound(`to-do not found: ${absent.join(", ")}; run todo list to see all to-dos`);
}

async function watch(context: CommandContext): Promise<void> {
  const interrupt = new AbortController();
  // The reader of the output has closed it, as `head` does.
  context.process.stdout.once("error", () => interrupt.abort());
  const signal = AbortSignal.any([context.signal, interrupt.signal]);
  while (!signal.aborted) await watchOnce({ ...context, signal });
  if (context.signal.aborted) throw interrupted();
}

/** Prints the list and each change to it. Returns when the server no longer has all changes. */
async function watchOnce({ process, api, signal, printLine, isJson, service }: CommandContext) {
  const { todos, position } = await api.list({}, { signal });
  if (!isJson) printTodos(process.stdout, todos, describeEmpty({}, ""));
  const titles = new Map(todos.map(({ id, title }) => [id, title]));
  let wasDisconnected = false;
  for await (const event of api.events({ since: position, signal })) {
    switch (event.type) {
      case "created":
      case "updated":
        titles.set(event.todo.id, event.todo.title);
        printLine(event, () => formatRow(process.stdout, event.todo));
        break;
      case "deleted": {
        const { id } = event;
        const title = escapeControls(titles.get(id) ?? "");
        const line = truncate(`deleted ${id} ${title}`, getColumns(process.stdout));
        printLine(event, () => paint("red", line, process.stdout));
        titles.delete(id);
        break;
      }
      case "resync":
        if (isJson) printLine(event);
        else printError(process, "some changes were missed; this is the current list");
        return;
      case "disconnected":
        wasDisconnected = true;
        printError(process, `lost the connection to ${service.url}; reconnecting`);
        break;
      case "connected":
        if (wasDisconnected) printError(process, "reconnected");
    }
  }
}

async function whoami({ api, signal, printLine }: CommandContext): Promise<void> {
  const name = await api.whoami({ signal });
  printLine({ name }, () => escapeControls(name));
}

/** Serves an assistant over standard input and output. Loads the protocol only here, because it would slow down other commands. */
async function serveAssistant(process: CommandProcess, flags: Flags): Promise<void> {
  const service = readService(flags, process.env);
  const { serveOverStdio } = await import("../../mcp/stdio.ts");
  await serveOverStdio({
    todos: createApi(service, {}),
    describe: (error) => describeError(error, service),
    version,
    input: process.stdin,
    output: process.stdout,
    warn: (message) => printError(process, message),
  });
}

/** Prints to-dos as a table, or another text if there are none. */
function printTodos(stdout: Output, todos: readonly Todo[], whenEmpty: string): void {
  const idWidth = todos.at(-1)?.id.length ?? 0;
  const rows = todos.length === 0 ? [whenEmpty] : todos.map((todo) => formatRow(stdout, todo, { idWidth }));
  stdout.write(rows.map((row) => `${row}\n`).join(""));
}

const printTodo = ({ process, printLine }: CommandContext, todo: Todo, row: RowOptions = {}): void =>
  printLine(todo, () => formatRow(process.stdout, todo, row));

interface RowOptions {
  readonly idWidth?: number;
  readonly before?: string;
  readonly columns?: number;
}

/** Returns a to-do as one line of the terminal, with as much of its title as fits. */
function formatRow(
  stdout: Output,
  { id, title, done }: Todo,
  { idWidth = 0, before = "", columns = getColumns(stdout) }: RowOptions = {},
): string {
  const start = `${before}${id.padStart(idWidth)}  ${done ? "[x]" : "[ ]"}  `;
  const titleColumns = Math.max(columns - start.length, MIN_TITLE_COLUMNS);
  const row = start + truncate(escapeControls(title), titleColumns);
  return done ? paint("dim", row, stdout) : row;
}
