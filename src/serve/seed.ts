import type { Config } from "../config/config.ts";
import { readText } from "../config/text-file.ts";
import { asUsageError, CommandError, toUsageError } from "../config/usage-error.ts";
import { errorMessage } from "../error-message.ts";
import {
  InvalidFileError,
  type OnProgress,
  PreconditionError,
  UsedStoreError,
} from "../storage/maintenance.ts";
import { encodeHeader, inBatches } from "../storage/ndjson.ts";
import { NdjsonReader } from "../storage/ndjson-reader.ts";
import { openStoreAdmin } from "../storage/open.ts";
import type { Store } from "../storage/store.ts";
import { LINE_BREAK } from "../text.ts";
import { encodeTodo, MAX_TODO_ID, parseNewTodo, type Todo } from "../todo.ts";

type Seed = Pick<Todo, "title" | "done">;

/**
 * Fills a store that has never held a to-do from a file: an export, or lines such as `- [ ] title`, `- [x] title` or a plain
 * title. Returns the store and the number of to-dos; without the number if the store has held some. Throws a CommandError,
 * and stores nothing, if the file is invalid or has too many to-dos, or if the store fails.
 * @param reopen opens the store again, because the import needs it closed
 */
export async function seedStore(
  store: Store,
  { seed, url, maxTodos }: Config["store"],
  reopen: () => Promise<Store>,
  onProgress: OnProgress = () => {},
): Promise<{ readonly store: Store; readonly todos?: number }> {
  if (seed === undefined || store.count > 0) return { store };
  const subject = `${seed.source} ${seed.value}`;
  const text = asUsageError(subject, () => readText(seed.value));
  const task = { signal: new AbortController().signal, onProgress };
  try {
    if (url.value === "memory:") {
      const todos = new NdjsonReader({ maxId: MAX_TODO_ID, maxTodos }).readAll(toExport(text, subject), task);
      for await (const batch of todos) for (const todo of batch) await insert(store, todo);
      return { store, todos: store.count };
    }
    await store.close();
    const { todos } = await openStoreAdmin(url.value).import(toExport(text, subject), maxTodos, task);
    return { store: await reopen(), todos };
  } catch (error) {
    // The store has held to-dos, or another replica has seeded it at the same time.
    if (error instanceof UsedStoreError) return { store: await reopen() };
    if (error instanceof InvalidFileError) throw toUsageError(subject, error);
    if (error instanceof PreconditionError) throw toUsageError(url.source, error);
    throw error instanceof CommandError ? error : new CommandError(`${url.source}: ${errorMessage(error)}`);
  }
}

async function insert(store: Store, { title, done }: Seed): Promise<void> {
  const { id } = await store.insert(title);
  if (done) await store.setDone(id, true);
}

/** Yields the to-dos of a seed file as an export with ids from 1. */
async function* toExport(text: string, subject: string): AsyncGenerator<Uint8Array> {
  const seeds = text.trimStart().startsWith("{") ? parseExport(text) : parseLines(text, subject);
  let id = 0n;
  for (const batch of inBatches(seeds))
    yield Buffer.from(batch.map((seed) => `${encodeTodo({ id: ++id, ...seed })}\n`).join(""));
  // An import without a header needs a to-do.
  if (id === 0n) yield Buffer.from(encodeHeader({ lastId: 0n, todos: 0 }));
}

function* parseExport(text: string): Generator<Seed> {
  const reader = new NdjsonReader({ maxId: MAX_TODO_ID });
  for (const { title, done } of reader.read(Buffer.from(text))) yield { title, done };
  for (const { title, done } of reader.end()) yield { title, done };
}

function* parseLines(text: string, subject: string): Generator<Seed> {
  for (const [index, line] of text.split(LINE_BREAK).entries()) {
    // The space at the end lets the pattern recognize an item without a title.
    const [, mark = " ", title = ""] =
      /^(?:(?:[-*+] |\d+[.)] (?=\[[ xX]\] ))(?:\[([ xX])\] )?)?(.*?) ?$/.exec(`${line.trim()} `) ?? [];
    if (title === "") continue;
    const todo = asUsageError(`${subject}, line ${index + 1}: title`, () => parseNewTodo({ title }));
    yield { ...todo, done: mark !== " " };
  }
}
