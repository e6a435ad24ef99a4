import { isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import type { Command } from "commander";
import { ServiceError } from "../error.ts";
import { errorMessage } from "../error-message.ts";
import { type ListQuery, type Todo, TodoApi, TodoApiError, type TodoId } from "../sdk/client.ts";
import { parseNewTodo, parseTodoId } from "../todo.ts";
import { isBlank } from "../validation.ts";
import { type Flags, readService } from "./config.ts";
import { unlessAborted } from "./maintenance.ts";
import { withProgressBar } from "./progress.ts";
import { CLIENT_SETTINGS, optionFor } from "./settings.ts";
import { columnsOf, escapeControls, escapeControlsJson, paint, truncate } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

/** Exit codes besides 0 for success and 2 for usage errors. */
const FAILED_EXIT_CODE = 1;
const NOT_FOUND_EXIT_CODE = 3;
const UNAUTHORIZED_EXIT_CODE = 4;
const INTERRUPTED_EXIT_CODE = 130;

/** Few, because somebody waits for the result. */
const RETRIES = 2;
/** Enough to outlast a restart of the service. */
const RETRIES_OF_LINES = 8;

/** Adds the commands for the to-dos of a running service: `list`, `add`, `done`, `undo`, `rm`, `watch`, `whoami`. */
export function addTodoCommands(program: Command): void {
  const add = (name: string, description: string): Command =>
    program
      .command(name)
      .description(description)
      .addOption(optionFor(CLIENT_SETTINGS.url))
      .option("--json", "print lines of JSON, which is the default unless the output is a terminal");

  add("list", "Show the to-dos.")
    .option("--open", "show only to-dos that are not done")
    .option("--done", "show only to-dos that are done")
    .action((flags: Flags) => runCommand(flags, list));
  add("add", "Add a to-do with the words as its title. With -, add one for each line of standard input.")
    .argument("<title...>")
    .option("--batch <name>", "with -: skip lines that were added under this name in the last 24 hours")
    .action((words: string[], flags: Flags) => runCommand(flags, (context) => addTodos(context, words)));
  add("done", "Mark to-dos as done.").argument("<id...>").action(setDoneCommand(true));
  add("undo", "Mark to-dos as not done.").argument("<id...>").action(setDoneCommand(false));
  add("rm", "Delete to-dos.")
    .argument("<id...>")
    .action((ids: string[], flags: Flags) => runCommand(flags, (context) => remove(context, ids)));
  add("watch", "Show the to-dos, then each change, until Ctrl-C. In a pipe, print only the changes.").action(
    (flags: Flags) => runCommand(flags, watch),
  );
  add("whoami", "Print the name of the client that TODO_TOKEN belongs to.").action((flags: Flags) =>
    runCommand(flags, whoami),
  );
}

/** What a running command needs. */
interface CommandContext {
  readonly flags: Flags;
  readonly service: { readonly url: string; readonly token: string | undefined };
  readonly api: TodoApi;
  /** Aborts with the first Ctrl-C. */
  readonly signal: AbortSignal;
  /** Prints the value as a line of JSON, or else the text, if given. */
  readonly printLine: (value: object, text?: () => string) => void;
  readonly isJson: boolean;
}

/** Runs a command. On failure, prints a line that says what to do and sets the exit code. */
async function runCommand(flags: Flags, work: (context: CommandContext) => Promise<void>): Promise<void> {
  const service = readService(flags, process.env);
  const isJson = flags.json === true || !process.stdout.isTTY;
  const interrupt = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupt.abort());
  const printLine: CommandContext["printLine"] = (value, text) => {
    if (isJson) process.stdout.write(`${escapeControlsJson(asJson(value))}\n`);
    else if (text !== undefined) process.stdout.write(`${text()}\n`);
  };
  try {
    const api = apiOf(service, RETRIES);
    await work({ flags, service, api, signal: interrupt.signal, printLine, isJson });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const isInterrupted = interrupt.signal.aborted;
    if (error instanceof IncompleteBatchError || !isInterrupted) printError(describeError(error, service));
    // Reading standard input may never end by itself.
    if (isInterrupted) process.exit(INTERRUPTED_EXIT_CODE);
    process.exitCode = exitCodeOf(error);
  }
}

function apiOf({ url, token }: CommandContext["service"], retries: number): TodoApi {
  return new TodoApi({ baseUrl: url, retries, ...(token !== undefined && { token }) });
}

async function list({ api, flags, signal, printLine, isJson }: CommandContext): Promise<void> {
  if (flags.open === true && flags.done === true)
    throw new UsageError("--open and --done are both set: keep one");
  const query: ListQuery = flags.open === flags.done ? {} : { done: flags.done === true };
  const { todos } = await api.list(query, { signal });
  if (isJson) for (const todo of todos) printLine(todo);
  else showTable(todos);
}

async function addTodos(context: CommandContext, words: readonly string[]): Promise<void> {
  const { api, flags, signal, printLine } = context;
  if (words.length === 1 && words[0] === "-") return addLines(context);
  if (flags.batch !== undefined)
    throw new UsageError("--batch requires lines on standard input: todo add - --batch NAME");
  const todo = await api.create(words.join(" "), { signal });
  printLine(todo, () => `added ${rowOf(todo)}`);
}

/** Not all lines of a batch were added. The message says how to add the rest. */
class IncompleteBatchError extends Error {
  override readonly name = "IncompleteBatchError";
}

async function addLines({ flags, service, signal, printLine, isJson }: CommandContext): Promise<void> {
  const { batch } = flags;
  if (batch === "") throw new UsageError("--batch needs a name that is not empty");
  const name = typeof batch === "string" ? batch : randomBytes(4).toString("hex");
  const titles = titlesIn(await unlessAborted(signal, Bun.stdin.bytes()));
  const api = apiOf(service, RETRIES_OF_LINES);
  let added = 0;
  try {
    await withProgressBar("adding", true, async (onProgress) => {
      for (const [title, idempotencyKey] of keyed(titles, name)) {
        const todo = await api.create(title, { idempotencyKey, signal });
        if (isJson) printLine(todo);
        onProgress(++added, titles.length);
      }
    });
  } catch (error) {
    const why = signal.aborted ? "interrupted" : describeError(error, service);
    const next = `${added} of ${titles.length} lines were added; to add the rest, pass the same lines to: todo add - --batch ${name}`;
    throw new IncompleteBatchError(`${why}\n${next}`, { cause: error });
  }
  if (!isJson) process.stdout.write(`added ${added} to-dos\n`);
}

/** Returns the lines that are not blank. Checks all of them before the first one is sent. */
function titlesIn(bytes: Uint8Array): string[] {
  // The decoder replaces invalid bytes with U+FFFD, which a title may also contain legitimately.
  const text = new TextDecoder().decode(bytes);
  if (!isUtf8(bytes)) {
    const at = text.split("\n").findIndex((line) => line.includes("\uFFFD"));
    throw new UsageError(`line ${at + 1} is not UTF-8; nothing was added`);
  }
  return text.split(/\r?\n/).flatMap((title, at) => {
    if (isBlank(title)) return [];
    try {
      return [parseNewTodo({ title }).title];
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const messages = error.errors?.map(({ message }) => message).join(", ");
      throw new UsageError(`line ${at + 1} ${messages}; nothing was added`);
    }
  });
}

/** Yields each title with an idempotency key, made of the batch name, the title and how often the title came before. */
function* keyed(titles: readonly string[], batch: string): Generator<readonly [title: string, key: string]> {
  const times = new Map<string, number>();
  for (const title of titles) {
    const time = (times.get(title) ?? 0) + 1;
    times.set(title, time);
    yield [
      title,
      createHash("sha256")
        .update(JSON.stringify([batch, title, time]))
        .digest("hex"),
    ];
  }
}

const setDoneCommand = (done: boolean) => (ids: string[], flags: Flags) =>
  runCommand(flags, ({ api, signal, printLine }) =>
    each(ids, async (id) => {
      const todo = await api.setDone(id, done, { signal });
      printLine(todo, () => rowOf(todo));
    }),
  );

function remove({ api, signal, printLine }: CommandContext, ids: readonly string[]): Promise<void> {
  return each(ids, async (id) => {
    await api.delete(id, { signal });
    printLine({ id }, () => `deleted ${id}`);
  });
}

/** Calls `work` for every id, then throws a NotFound error that lists the ids without a to-do. */
async function each(texts: readonly string[], work: (id: TodoId) => Promise<void>): Promise<void> {
  const ids = texts.map((text) => {
    const id = parseTodoId(text);
    if (id === undefined)
      throw new UsageError(`${JSON.stringify(text)} is not an id: run todo list to see the ids`);
    return id;
  });
  const absent: TodoId[] = [];
  for (const id of ids) {
    try {
      await work(id);
    } catch (error) {
      if (!(error instanceof TodoApiError && error.code === "todo_not_found")) throw error;
      absent.push(id);
    }
  }
  if (absent.length > 0)
    throw new NotFound(`to-do not found: ${absent.join(", ")}; run todo list to see all to-dos`);
}

class NotFound extends Error {
  override readonly name = "NotFound";
}

async function watch(context: CommandContext): Promise<void> {
  const interrupt = new AbortController();
  // The reader of the output has closed it, as `head` does.
  process.stdout.once("error", () => interrupt.abort());
  const signal = AbortSignal.any([context.signal, interrupt.signal]);
  while (!signal.aborted) await watchOnce({ ...context, signal });
}

/** Prints the list and each change to it. Returns when the server no longer has all changes. */
async function watchOnce({ api, signal, printLine, isJson, service }: CommandContext): Promise<void> {
  const { todos, position } = await api.list({}, { signal });
  if (!isJson) showTable(todos);
  const titles = new Map(todos.map(({ id, title }) => [id, title]));
  let wasDisconnected = false;
  for await (const event of api.events({ since: position, signal })) {
    switch (event.type) {
      case "created":
      case "updated":
        titles.set(event.todo.id, event.todo.title);
        printLine(event, () => rowOf(event.todo));
        break;
      case "deleted": {
        const { id } = event;
        const title = escapeControls(titles.get(id) ?? "");
        printLine(event, () => paint("red", `deleted ${id} ${title}`, process.stdout));
        titles.delete(id);
        break;
      }
      case "resync":
        if (isJson) printLine(event);
        else printError("some changes were missed; this is the current list");
        return;
      case "disconnected":
        wasDisconnected = true;
        printError(`lost the connection to ${service.url}; reconnecting`);
        break;
      case "connected":
        if (wasDisconnected) printError("reconnected");
    }
  }
}

async function whoami({ api, signal, printLine }: CommandContext): Promise<void> {
  const name = await api.whoami({ signal });
  printLine({ name }, () => escapeControls(name));
}

function showTable(todos: readonly Todo[]): void {
  if (todos.length === 0) process.stdout.write("No to-dos yet. To add one, run: todo add buy milk\n");
  const width = String(todos.at(-1)?.id ?? "").length;
  for (const todo of todos) process.stdout.write(`${rowOf(todo, width)}\n`);
}

/** Returns a to-do as one line for the terminal. */
function rowOf({ id, title, done }: Todo, idWidth = 0): string {
  const start = `${String(id).padStart(idWidth)}  ${done ? "[x]" : "[ ]"}  `;
  const shown = truncate(escapeControls(title), Math.max(columnsOf(process.stdout) - start.length, 10));
  return done ? paint("dim", start + shown, process.stdout) : start + shown;
}

/** Encodes flat or nested objects as JSON, with bigints as exact digits. */
function asJson(value: unknown): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}:${asJson(one)}`)}}`;
}

function printError(message: string): void {
  for (const line of message.split("\n"))
    process.stderr.write(`${paint("red", "todo:", process.stderr)} ${escapeControls(line)}\n`);
}

/** Returns whether a connection failed because of the server certificate. */
const isDistrusted = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && /CERT|ALTNAME|VERIFY/.test(String(cause.code));

/** Returns what is wrong and what to do about it. */
export function describeError(error: unknown, { url, token }: CommandContext["service"]): string {
  if (!(error instanceof TodoApiError)) return errorMessage(error);
  switch (error.code) {
    case "network_error":
      if (isDistrusted(error.cause)) {
        return `the certificate of ${url} is not trusted: set NODE_EXTRA_CA_CERTS to the file of its certificate authority`;
      }
      return url === CLIENT_SETTINGS.url.default
        ? `cannot connect to ${url}: start the service with npm start, or set --url or TODO_URL`
        : `cannot connect to ${url}: is the service running? Check --url or TODO_URL`;
    case "timeout":
      return `${url} did not respond in time: the change may have been made; check with todo list`;
    case "unexpected_answer":
      return `${url} is not a to-do service (status ${error.status}): check --url or TODO_URL`;
    case "unauthorized":
      return `${token === undefined ? "TODO_TOKEN is not set" : "the token in TODO_TOKEN is not valid"}: set it to a token, such as one that todo keys create NAME prints`;
    case "insufficient_scope":
      return "the token in TODO_TOKEN may only read: set it to the token of an API key with the scope write, such as one that todo keys create NAME prints";
    case "misdirected_host":
      return `${url} rejects this host name: ${error.detail ?? "see TODO_ALLOWED_HOSTS"}`;
    default:
      return error.fields.length > 0
        ? error.fields.map(({ field, message }) => `the ${field} ${message}`).join(", ")
        : `${error.message} (${error.code})`;
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof NotFound) return NOT_FOUND_EXIT_CODE;
  if (error instanceof TodoApiError && error.code === "unauthorized") return UNAUTHORIZED_EXIT_CODE;
  return FAILED_EXIT_CODE;
}
