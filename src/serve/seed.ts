import type { Sourced } from "../config/setting-values.ts";
import { readText } from "../config/text-file.ts";
import { asUsageError, UsageError } from "../config/usage-error.ts";
import { NdjsonReader } from "../storage/ndjson-reader.ts";
import type { Store } from "../storage/store.ts";
import { MAX_TODO_ID, parseNewTodo, type Todo } from "../todo.ts";

type Seed = Pick<Todo, "title" | "done">;

/**
 * Fills a store that has never held a to-do from a file: an export, or lines such as `- [ ] title`, `- [x] title` or a plain
 * title. Returns the number of to-dos; undefined for another store. Throws a UsageError, and stores nothing, if the file is
 * invalid or has too many to-dos.
 */
export async function seedStore(store: Store, file: Sourced, maxTodos: number): Promise<number | undefined> {
  const subject = `${file.source} ${file.value}`;
  const text = asUsageError(subject, () => readText(file.value));
  const todos = text.trimStart().startsWith("{")
    ? asUsageError(subject, () => parseExport(text))
    : parseLines(text, subject);
  if (todos.length > maxTodos)
    throw new UsageError(`${subject}: the file has more than ${maxTodos} to-dos: raise --max-todos`);
  if (store.count > 0 || (await store.position()).sequence > 0) return undefined;
  await Promise.all(
    todos.map(async ({ title, done }, index) => {
      // Replicas that start at once insert the same to-dos.
      const { id } = await store.insert(title, `seed\n${index}\n${title}`);
      if (done) await store.setDone(id, true);
    }),
  );
  return todos.length;
}

function parseExport(text: string): readonly Seed[] {
  const reader = new NdjsonReader(MAX_TODO_ID);
  return [...reader.read(Buffer.from(text)), ...reader.end()];
}

function parseLines(text: string, subject: string): readonly Seed[] {
  return text.split(/\r?\n/).flatMap((line, index) => {
    const [, mark = " ", text = ""] = /^(?:[-*] (?:\[([ xX])\] )?)?(.*)$/.exec(line.trim()) ?? [];
    if (text === "") return [];
    const { title } = asUsageError(`${subject}, line ${index + 1}: title`, () =>
      parseNewTodo({ title: text }),
    );
    return [{ title, done: mark !== " " }];
  });
}
