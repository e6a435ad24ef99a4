import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import fc from "fast-check";
import { HOSTILE_TITLES, read } from "../../../test/store-contract.ts";
import { encodeTodo, type Todo, todoText } from "../../todo.ts";
import { Table } from "../table/table.ts";
import { Checksum } from "./checksum.ts";
import { readTodoRuns } from "./todo-rows.ts";

function databaseOf(rows: readonly { readonly id: bigint; readonly json: string }[]): Database {
  const database = new Database(":memory:", { safeIntegers: true });
  database.run("CREATE TABLE todos (id INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT");
  const insert = database.query("INSERT INTO todos VALUES (?, ?)");
  database.transaction(() => {
    for (const { id, json } of rows) insert.run(id, json);
  })();
  return database;
}

function checksumOf(rows: readonly { readonly id: bigint; readonly json: string }[]): Checksum {
  const checksum = new Checksum();
  using database = databaseOf(rows);
  for (const _ of readTodoRuns(database, checksum));
  return checksum;
}

const gap = fc.oneof(
  { weight: 20, arbitrary: fc.bigInt(1n, 3n) },
  { weight: 1, arbitrary: fc.bigInt(2n ** 32n - 2n, 2n ** 32n + 2n) },
  { weight: 1, arbitrary: fc.bigInt(1n, 2n ** 57n) },
);
const title = fc.oneof(fc.constantFrom(...HOSTILE_TITLES), fc.string({ unit: "grapheme", maxLength: 120 }));
const todos = fc
  .array(fc.record({ gap, title, done: fc.boolean() }), { minLength: 1, maxLength: 50 })
  .map((steps) => {
    let id = 0n;
    return steps.map(({ gap, ...todo }): Todo => {
      id += gap;
      return { id, ...todo };
    });
  });

test("readTodoRuns returns all to-dos, and adds each to the checksum", async () => {
  await fc.assert(
    fc.asyncProperty(todos, fc.nat(2500), async (some, more) => {
      const last = some.at(-1)?.id ?? 0n;
      const rest = Array.from({ length: more }, (_, i) => ({
        id: last + BigInt(i + 1),
        title: `${i}`,
        done: i % 2 === 0,
      }));
      const all = [...some, ...rest];
      const rows = all.map((todo) => ({ id: todo.id, json: encodeTodo(todo) }));
      const table = new Table();
      const [checksum, expected] = [new Checksum(), new Checksum()];
      for (const { json } of rows) expected.add(json);
      using database = databaseOf(rows);
      for (const run of readTodoRuns(database, checksum)) table.appendRun(run);
      const list = { ...table.list({}), position: { epoch: "e", sequence: 0 } };
      expect((await read(list)).todos).toEqual(all);
      expect(all.map(({ id }) => todoText(table.get(id) ?? ""))).toEqual(rows.map(({ json }) => json));
      expect([table.count, checksum]).toEqual([all.length, expected]);
    }),
    { numRuns: 50 },
  );
});

test("readTodoRuns adds another checksum for to-dos under other ids or with line feeds", () => {
  const rows = [1n, 2n, 13n].map((id) => ({ id, json: encodeTodo({ id, title: "a", done: false }) }));
  const right = checksumOf(rows);
  const [one, two, last] = rows;
  if (one === undefined || two === undefined || last === undefined) throw new Error("rows are missing");
  const wrong = [
    [one, { ...two, id: 3n }, last],
    [{ ...one, json: two.json }, { ...two, json: one.json }, last],
    [one, two, { ...last, id: 131n }],
    [one, two, { ...last, id: 1n + 2n ** 32n }],
    [one, { id: 2n, json: `${two.json}\n${last.json}` }],
    [{ ...one, json: `${one.json}\n` }, two, last],
    [{ ...one, json: "" }, two, last],
  ];
  for (const changed of wrong) expect(checksumOf(changed).equals(right)).toBe(false);
});
