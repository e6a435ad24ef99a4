import { expect, test } from "bun:test";
import fc from "fast-check";
import { encodeTodo, type ListQuery, type Todo, type TodoId, type TodoList, todoText } from "../../todo.ts";
import { Table } from "./table.ts";

const MAX_CHUNK_BYTES = 16 * 1024;

interface Change {
  readonly kind: "append" | "toggle" | "delete";
  /** The distance to the previous id, or the index of an existing to-do. */
  readonly number: number;
  readonly titleLength: number;
}

const changes = fc.array(
  fc.record<Change>({
    kind: fc.constantFrom("append", "append", "toggle", "delete"),
    number: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(2 ** 31, 2 ** 32)),
    titleLength: fc.constantFrom(1, 80, 5000, 16_000, 40_000),
  }),
  { minLength: 1, maxLength: 40 },
);

/** Deletes the long title that keeps two small segments apart, after a to-do of the second one is done. */
const merge: readonly Change[] = [
  { kind: "append", number: 1, titleLength: 1 },
  { kind: "append", number: 1, titleLength: 40_000 },
  { kind: "append", number: 1, titleLength: 1 },
  { kind: "toggle", number: 2, titleLength: 1 },
  { kind: "delete", number: 1, titleLength: 1 },
];

const textOf = (todos: readonly Todo[]): string => `[${todos.map(encodeTodo).join(",")}]`;

/** Reads a list. Chunks have at least one byte, and two of them do not fit into one. */
async function textOfList(json: TodoList["json"]): Promise<string> {
  if (json instanceof Uint8Array) return Buffer.from(json).toString();
  if (json instanceof Blob) return json.text();
  const chunks: Uint8Array[] = [];
  for await (const chunk of json) chunks.push(chunk);
  const lengths = chunks.map(({ length }) => length);
  expect(Math.min(...lengths)).toBeGreaterThan(0);
  // The last chunk is the closing bracket.
  const joined = lengths.slice(1, -1).map((length, index) => length + (lengths[index] ?? 0));
  for (const length of joined) expect(length).toBeGreaterThan(MAX_CHUNK_BYTES);
  return Buffer.concat(chunks).toString();
}

function apply(table: Table, model: Todo[], { kind, number, titleLength }: Change): void {
  const index = number % Math.max(model.length, 1);
  const todo = model[index];
  if (kind === "append") {
    const added = {
      id: (model.at(-1)?.id ?? 0n) + BigInt(number),
      title: "x".repeat(titleLength),
      done: false,
    };
    table.append(added.id, encodeTodo(added));
    model.push(added);
  } else if (todo !== undefined && kind === "toggle") {
    const changed = { ...todo, done: !todo.done };
    for (const _ of [1, 2]) {
      table.setDone(todo.id, changed.done);
      expect(todoText(table.get(todo.id) ?? "")).toBe(encodeTodo(changed));
    }
    model[index] = changed;
  } else if (todo !== undefined) {
    expect(table.delete(todo.id)).toBe(true);
    expect(table.delete(todo.id)).toBe(false);
    model.splice(index, 1);
  }
}

function queriesOf(model: readonly Todo[]): ListQuery[] {
  const middle = model[model.length >> 1]?.id ?? 0n;
  const filters: ListQuery[] = [{}, { done: true }, { done: false }, { after: 0n }, { after: middle }];
  filters.push({ after: middle + 1n, done: false }, { after: (model.at(-1)?.id ?? 0n) + 1n });
  return filters.flatMap((filter) => [filter, { ...filter, limit: 1 }, { ...filter, limit: 3 }]);
}

function expected(model: readonly Todo[], { after, done, limit = model.length }: ListQuery) {
  const found = model.filter(
    (todo) => (after === undefined || todo.id > after) && (done === undefined || todo.done === done),
  );
  const shown = found.slice(0, limit);
  const next: TodoId | undefined = found.length > limit ? shown.at(-1)?.id : undefined;
  return { text: textOf(shown), next };
}

test("Table returns the same results as a simple model, and its lists are snapshots", async () => {
  await fc.assert(
    fc.asyncProperty(changes, async (sequence) => {
      const table = new Table();
      const model: Todo[] = [];
      const snapshots: { readonly json: TodoList["json"]; readonly text: string }[] = [];
      for (const change of sequence) {
        apply(table, model, change);
        for (const query of queriesOf(model)) {
          const { text, next } = expected(model, query);
          const list = table.list(query, 0);
          expect(list.next).toBe(next);
          snapshots.push({ json: list.json, text });
        }
      }
      expect(table.count).toBe(model.length);
      for (const todo of model) {
        expect(Buffer.from(table.get(todo.id) ?? []).toString()).toBe(encodeTodo(todo));
        expect(table.get(todo.id + 1n) === undefined).toBe(!model.some(({ id }) => id === todo.id + 1n));
      }
      for (const query of queriesOf(model)) {
        const { text } = expected(model, query);
        expect(await textOfList(table.list(query).json)).toBe(text);
      }
      for (const { json, text } of snapshots) expect(await textOfList(json)).toBe(text);
    }),
    { numRuns: 60, examples: [[[...merge]]] },
  );
});

test("Table lists all to-dos as a Blob up to exactly maxBlobBytes", () => {
  fc.assert(
    fc.property(changes, (sequence) => {
      const table = new Table();
      const model: Todo[] = [];
      for (const change of sequence) apply(table, model, change);
      // The text of an empty list is counted as one byte.
      const bytes = model.length === 0 ? 1 : textOf(model).length;
      expect(table.list({}, bytes - 1).json instanceof Blob).toBe(false);
      expect(table.list({}, bytes).json instanceof Blob).toBe(true);
    }),
    { numRuns: 60 },
  );
});
