import { isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import type { Command } from "commander";
import { Failure } from "../failure.ts";
import { isBlank } from "../field.ts";
import { type ListQuery, type Todo, TodoApi, TodoApiError, type TodoId } from "../sdk.ts";
import { parseNewTodo, parseTodoId } from "../todo.ts";
import { unlessAborted } from "./archive.ts";
import { CLIENT_SETTINGS, type Flags, optionFor, readService, UsageError } from "./config.ts";
import { withBar } from "./progress.ts";
import { columnsOf, cut, harmless, harmlessJson, painter } from "./terminal.ts";

/** Exit codes besides 0, and 2 for what was called wrongly. */
const FAILED_EXIT_CODE = 1;
const NOT_FOUND_EXIT_CODE = 3;
const UNAUTHORIZED_EXIT_CODE = 4;
const INTERRUPTED_EXIT_CODE = 130;

/** Somebody waits for the answer. */
const RETRIES = 2;
/** For many lines nobody does: a restart of the service is sat out. */
const RETRIES_OF_LINES = 8;

/** Adds the commands for the to-dos of a running service: `list`, `add`, `done`, `undo`, `rm`, `watch`, `whoami`. */
export function addTodoCommands(program: Command): void {
  const add = (name: string, description: string): Command =>
    program
      .command(name)
      .description(description)
      .addOption(optionFor(CLIENT_SETTINGS.url))
      .option("--json", "lines of JSON, as when the output is no terminal");

  add("list", "Show the to-dos.")
    .option("--open", "only those that are not done")
    .option("--done", "only those that are done")
    .action((flags: Flags) => ask(flags, list));
  add("add", "Add a to-do, of all the words; with -, one for each line of standard input.")
    .argument("<title...>")
    .option("--batch <name>", "with -: no line is added again that was, within a day, under this name")
    .action((words: string[], flags: Flags) => ask(flags, (asking) => addTodos(asking, words)));
  add("done", "Mark to-dos as done.").argument("<id...>").action(marker(true));
  add("undo", "Mark to-dos as not done.").argument("<id...>").action(marker(false));
  add("rm", "Delete to-dos.")
    .argument("<id...>")
    .action((ids: string[], flags: Flags) => ask(flags, (asking) => remove(asking, ids)));
  add(
    "watch",
    "Show the to-dos, then each change as it happens, until Ctrl-C; piped, the changes alone.",
  ).action((flags: Flags) => ask(flags, watch));
  add("whoami", "Say whose token TODO_TOKEN is.").action((flags: Flags) => ask(flags, whoami));
}

/** A command that runs: what it asks, and how it says what it was told. */
interface Asking {
  readonly flags: Flags;
  readonly service: { readonly url: string; readonly token: string | undefined };
  readonly api: TodoApi;
  /** Aborts with the first Ctrl-C. */
  readonly signal: AbortSignal;
  /** Writes a line: as JSON, or for people, where there is one for them. */
  readonly say: (value: object, text?: () => string) => void;
  readonly isJson: boolean;
}

/** Runs a command; a failure ends the process with one line that says what to do, and an exit code. */
async function ask(flags: Flags, work: (asking: Asking) => Promise<void>): Promise<void> {
  const service = readService(flags, process.env);
  const isJson = flags.json === true || !process.stdout.isTTY;
  const leaving = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => leaving.abort());
  const say: Asking["say"] = (value, text) => {
    if (isJson) process.stdout.write(`${harmlessJson(asJson(value))}\n`);
    else if (text !== undefined) process.stdout.write(`${text()}\n`);
  };
  try {
    const api = apiOf(service, RETRIES);
    await work({ flags, service, api, signal: leaving.signal, say, isJson });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const isInterrupted = leaving.signal.aborted;
    if (error instanceof BrokenOff || !isInterrupted) complain(adviceOn(error, service));
    // What is read may never end.
    if (isInterrupted) process.exit(INTERRUPTED_EXIT_CODE);
    process.exitCode = exitCodeOf(error);
  }
}

function apiOf({ url, token }: Asking["service"], retries: number): TodoApi {
  return new TodoApi({ baseUrl: url, retries, ...(token !== undefined && { token }) });
}

async function list({ api, flags, signal, say, isJson }: Asking): Promise<void> {
  if (flags.open === true && flags.done === true)
    throw new UsageError("--open and --done are both there: keep one");
  const query: ListQuery = flags.open === flags.done ? {} : { done: flags.done === true };
  const { todos } = await api.list(query, { signal });
  if (isJson) for (const todo of todos) say(todo);
  else showTable(todos);
}

async function addTodos(asking: Asking, words: readonly string[]): Promise<void> {
  const { api, flags, signal, say } = asking;
  if (words.length === 1 && words[0] === "-") return addLines(asking);
  if (flags.batch !== undefined)
    throw new UsageError("--batch is for the lines of standard input: todo add -");
  const todo = await api.create(words.join(" "), { signal });
  say(todo, () => `added ${rowOf(todo)}`);
}

/** What was broken off, and how to go on. */
class BrokenOff extends Error {
  override readonly name = "BrokenOff";
}

async function addLines({ flags, service, signal, say, isJson }: Asking): Promise<void> {
  const { batch } = flags;
  if (batch === "") throw new UsageError("--batch has no name: the same lines could not be told from others");
  const name = typeof batch === "string" ? batch : randomBytes(4).toString("hex");
  const titles = titlesIn(await unlessAborted(signal, Bun.stdin.bytes()));
  const api = apiOf(service, RETRIES_OF_LINES);
  let added = 0;
  try {
    await withBar("adding", true, async (onProgress) => {
      for (const [title, idempotencyKey] of keyed(titles, name)) {
        const todo = await api.create(title, { idempotencyKey, signal });
        if (isJson) say(todo);
        onProgress(++added, titles.length);
      }
    });
  } catch (error) {
    const why = signal.aborted ? "broken off" : adviceOn(error, service);
    const next = `${added} of ${titles.length} are added; for the rest, give the same lines to: todo add - --batch ${name}`;
    throw new BrokenOff(`${why}\n${next}`, { cause: error });
  }
  if (!isJson) process.stdout.write(`added ${added} to-dos\n`);
}

/** The lines that are not blank. All of them are looked at before the first one is sent. */
function titlesIn(bytes: Uint8Array): string[] {
  // What is no UTF-8 becomes U+FFFD, which a title may hold of its own right.
  const text = new TextDecoder().decode(bytes);
  if (!isUtf8(bytes)) {
    const at = text.split("\n").findIndex((line) => line.includes("\uFFFD"));
    throw new UsageError(`line ${at + 1} is not UTF-8: nothing is added`);
  }
  return text.split(/\r?\n/).flatMap((title, at) => {
    if (isBlank(title)) return [];
    try {
      return [parseNewTodo({ title }).title];
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const messages = error.errors?.map(({ message }) => message).join(", ");
      throw new UsageError(`line ${at + 1} ${messages}: nothing is added`);
    }
  });
}

/** Each title with a key that is the same whenever it comes in a batch of this name, for the same time. */
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

const marker = (done: boolean) => (ids: string[], flags: Flags) =>
  ask(flags, ({ api, signal, say }) =>
    each(ids, async (id) => {
      const todo = await api.setDone(id, done, { signal });
      say(todo, () => rowOf(todo));
    }),
  );

function remove({ api, signal, say }: Asking, ids: readonly string[]): Promise<void> {
  return each(ids, async (id) => {
    await api.delete(id, { signal });
    say({ id }, () => `deleted ${id}`);
  });
}

/** Does all there is to do, and fails in the end with the ids that there is no to-do for. */
async function each(texts: readonly string[], work: (id: TodoId) => Promise<void>): Promise<void> {
  const ids = texts.map((text) => {
    const id = parseTodoId(text);
    if (id === undefined) throw new UsageError(`${JSON.stringify(text)} is no id: todo list shows them`);
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
  if (absent.length > 0) throw new NotFound(`there is no to-do ${absent.join(", ")}: todo list shows all`);
}

class NotFound extends Error {
  override readonly name = "NotFound";
}

async function watch(asking: Asking): Promise<void> {
  const leaving = new AbortController();
  // Who reads the output has had enough, as head does.
  process.stdout.once("error", () => leaving.abort());
  const signal = AbortSignal.any([asking.signal, leaving.signal]);
  while (!signal.aborted) await watchOnce({ ...asking, signal });
}

/** Shows the list and what becomes of it; returns when that is not known any more. */
async function watchOnce({ api, signal, say, isJson, service }: Asking): Promise<void> {
  const { todos, position } = await api.list({}, { signal });
  if (!isJson) showTable(todos);
  const titles = new Map(todos.map(({ id, title }) => [id, title]));
  const paint = painter(process.stdout, process.env);
  let wasGone = false;
  for await (const event of api.events({ since: position, signal })) {
    switch (event.type) {
      case "created":
      case "updated":
        titles.set(event.todo.id, event.todo.title);
        say(event, () => rowOf(event.todo));
        break;
      case "deleted": {
        const { id } = event;
        say(event, () => paint("red", `deleted ${id} ${harmless(titles.get(id) ?? "")}`));
        titles.delete(id);
        break;
      }
      case "resync":
        if (isJson) say(event);
        else complain("what changed meanwhile is not known; this is the list now");
        return;
      case "disconnected":
        wasGone = true;
        complain(`${service.url} is gone; waiting for it to come back`);
        break;
      case "connected":
        if (wasGone) complain("connected again");
    }
  }
}

async function whoami({ api, signal, say }: Asking): Promise<void> {
  const name = await api.whoami({ signal });
  say({ name }, () => harmless(name));
}

function showTable(todos: readonly Todo[]): void {
  if (todos.length === 0) process.stdout.write("nothing there: todo add buy milk\n");
  const width = String(todos.at(-1)?.id ?? "").length;
  for (const todo of todos) process.stdout.write(`${rowOf(todo, width)}\n`);
}

/** A to-do in one line of the terminal. */
function rowOf({ id, title, done }: Todo, idWidth = 0): string {
  const paint = painter(process.stdout, process.env);
  const start = `${String(id).padStart(idWidth)}  ${done ? "[x]" : "[ ]"}  `;
  const shown = cut(harmless(title), Math.max(columnsOf(process.stdout) - start.length, 10));
  return done ? paint("dim", start + shown) : start + shown;
}

/** Ids as exact digits. */
function asJson(value: unknown): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}:${asJson(one)}`)}}`;
}

function complain(message: string): void {
  const paint = painter(process.stderr, process.env);
  for (const line of message.split("\n"))
    process.stderr.write(`${paint("red", "todo:")} ${harmless(line)}\n`);
}

/** Whether a connection failed for the certificate at its other end. */
const isDistrusted = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && /CERT|ALTNAME|VERIFY/.test(String(cause.code));

/** What is wrong, and what to do about it. */
function adviceOn(error: unknown, { url, token }: Asking["service"]): string {
  if (!(error instanceof TodoApiError)) return error instanceof Error ? error.message : String(error);
  switch (error.code) {
    case "network_error":
      if (isDistrusted(error.cause)) {
        return `the certificate of ${url} is not trusted here: name the file of its authority in NODE_EXTRA_CA_CERTS`;
      }
      return url === CLIENT_SETTINGS.url.default
        ? `nothing answers at ${url}: start it with npm start, or say where it is by --url or TODO_URL`
        : `nothing answers at ${url}: does it run, and is that where it is (--url, TODO_URL)?`;
    case "timeout":
      return `${url} does not answer in time: what was asked for may have been done, todo list shows it`;
    case "unexpected_answer":
      return `what answers at ${url} is no to-do service (${error.status}): say where it is by --url or TODO_URL`;
    case "unauthorized":
      return `${token === undefined ? "TODO_TOKEN is not set" : "no client has this token"}: set TODO_TOKEN to one; todo keys create NAME makes one`;
    case "misdirected_host":
      return `${url} does not answer for this host: ${error.detail ?? "see TODO_ALLOWED_HOSTS"}`;
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
