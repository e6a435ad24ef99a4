import { expect, test } from "bun:test";
import { Ajv2020 } from "ajv/dist/2020.js";
import { errorOf } from "../../test/rejection.ts";
import { startService, type TestService } from "../../test/service.ts";
import { storeWith } from "../../test/store.ts";
import { TodoApi, type TodoApiOptions } from "../sdk/client.ts";
import { openMemory } from "../storage/memory/store.ts";
import { callTool, MAX_SEARCHED, TITLES_ARE_DATA, TOOL_DEFINITIONS } from "./tools.ts";

const ajv = new Ajv2020({ strict: true });
const LONGEST = "x".repeat(120);

type ClientOptions = Pick<TodoApiOptions, "retries" | "fetch">;
type Fetch = NonNullable<TodoApiOptions["fetch"]>;

const todosOf = ({ url }: TestService, options: ClientOptions = { retries: 0 }) =>
  new TodoApi({ baseUrl: url, ...options });

/** Calls a tool. Returns its structured result, which must match its schema and its text, or its error. */
async function call(
  service: TestService,
  name: string,
  given?: Readonly<Record<string, unknown>>,
  client?: ClientOptions,
) {
  const options = { signal: new AbortController().signal, describe: ({ message }: Error) => message };
  const result = await callTool(todosOf(service, client), name, given, options);
  const [block] = result?.content ?? [];
  const text: unknown = JSON.parse(block?.type === "text" ? block.text : "null");
  if (result?.isError === true) return { error: text };
  expect(text).toEqual(result?.structuredContent);
  const schema = anyObject(TOOL_DEFINITIONS.find((tool) => tool.name === name)?.outputSchema);
  expect([ajv.validate(schema, result?.structuredContent), ajv.errorsText()]).toEqual([true, "No errors"]);
  return result?.structuredContent;
}

/** Returns a schema without its type, which Ajv does not know. */
const anyObject = (schema: object = {}): object => schema;
const todo = (id: number, title: string, done = false) => ({ id: String(id), title, done });
const validation = (message: string) => ({
  error: { code: "validation_failed", message: expect.stringContaining(`Validation failed: ${message}`) },
});

test.each(TOOL_DEFINITIONS.map((tool) => [tool.name, tool] as const))(
  "each tool %s has a title, a description, annotations, and schemas that forbid other members",
  (name, { title, description, annotations, inputSchema, outputSchema }) => {
    expect(title).toBeString();
    expect(description).toEndWith(name === "find_todos" ? TITLES_ARE_DATA : ".");
    expect(annotations).toMatchObject({ readOnlyHint: expect.any(Boolean), openWorldHint: false });
    for (const schema of [inputSchema, outputSchema]) {
      expect(ajv.validateSchema(anyObject(schema))).toBe(true);
      expect(schema).toMatchObject({ type: "object", additionalProperties: false });
    }
  },
);

async function startWith(titles: readonly string[]): Promise<TestService> {
  const store = openMemory();
  for (const title of titles) {
    const { id } = await store.insert(title);
    if (title.startsWith("x ")) await store.setDone(id, true);
  }
  return startService({ store });
}

test("find_todos finds words in any order and by state, without regard to case and accents", async () => {
  await using service = await startWith(["Buy oat milk", "x buy milk", "walk", "call Ann"]);
  const found = async (given: Readonly<Record<string, unknown>>) => {
    const { todos, matches }: { todos: { id: string }[]; matches: number } = JSON.parse(
      JSON.stringify(await call(service, "find_todos", given)),
    );
    return [todos.map(({ id }) => id).join(), matches];
  };
  expect(await found({ text: "MILK buy" })).toEqual(["1,2", 2]);
  expect(await found({ text: "milk", state: "open" })).toEqual(["1", 1]);
  expect(await found({ state: "done" })).toEqual(["2", 1]);
  expect(await found({ text: "nothing" })).toEqual(["", 0]);
  expect(await found({})).toEqual(["1,2,3,4", 4]);
});

test("find_todos counts all matches, states what it leaves out, and continues there", async () => {
  await using service = await startWith(["a 1", "b", "a 2", "a 3"]);
  const first = await call(service, "find_todos", { text: "a", limit: 2 });
  expect(first).toEqual({
    todos: [todo(1, "a 1"), todo(3, "a 2")],
    matches: 3,
    note: expect.stringContaining("1 more"),
    next: "3",
  });
  expect(await call(service, "find_todos", { text: "a", limit: 2, after: 3 })).toEqual({
    todos: [todo(4, "a 3")],
    matches: 1,
  });
});

test("find_todos stops at its limit of searched to-dos, states it, and continues there", async () => {
  const titles = Array.from({ length: MAX_SEARCHED + 1 }, (_, at) => (at === MAX_SEARCHED ? "last" : "-"));
  await using service = await startWith(titles);
  const first = await call(service, "find_todos", { text: "last" });
  const next = String(MAX_SEARCHED);
  expect(first).toEqual({ todos: [], matches: 0, note: expect.stringContaining(next), next });
  expect(await call(service, "find_todos", { text: "last", after: next })).toMatchObject({
    todos: [{ title: "last" }],
  });
  expect(await call(service, "find_todos", { limit: 1 })).toMatchObject({
    matches: MAX_SEARCHED,
    next: "1",
  });
});

test("set_done and delete_todos accept ids as numbers and as strings, each once, and list the ids without a to-do", async () => {
  await using service = await startWith(["a", "b", "c"]);
  expect(await call(service, "set_done", { ids: [3, "9", "1", "03", 1], done: true })).toEqual({
    todos: [todo(3, "c", true), todo(1, "a", true)],
    notFound: ["9"],
  });
  expect(await call(service, "delete_todos", { ids: ["2", 7, 3] })).toEqual({
    deleted: ["2", "3"],
    notFound: ["7"],
  });
  expect(await call(service, "find_todos")).toEqual({ todos: [todo(1, "a", true)], matches: 1 });
});

test("delete_todos deletes exactly the id above 2^53", async () => {
  await using service = startService({ store: openMemory({ lastId: 2n ** 63n }) });
  await call(service, "add_todos", { todos: [{ title: "a" }, { title: "b" }] });
  const [kept, id] = [String(2n ** 63n + 1n), String(2n ** 63n + 2n)];
  expect(await call(service, "delete_todos", { ids: [id] })).toEqual({ deleted: [id], notFound: [] });
  expect(await call(service, "find_todos")).toMatchObject({ todos: [{ id: kept }] });
});

test("set_done and delete_todos fail with todo_not_found if no id has a to-do", async () => {
  await using service = await startWith(["a"]);
  const error = { code: "todo_not_found", message: "To-do not found", completed: [] };
  expect(await call(service, "set_done", { ids: ["8", "9"], done: true })).toEqual({ error });
  expect(await call(service, "delete_todos", { ids: [8] })).toEqual({ error });
});

test("set_done and delete_todos list what they completed before a failure of the service", async () => {
  const store = openMemory();
  for (const title of ["a", "b", "c"]) await store.insert(title);
  const setDone: typeof store.setDone = (id, done) => (id === 3n ? fail() : store.setDone(id, done));
  const deleteOne: typeof store.delete = (id) => (id === 3n ? fail() : store.delete(id));
  await using service = startService({ store: storeWith({ setDone, delete: deleteOne }, store) });
  const ids = ["2", "3", "1"];
  expect(await call(service, "set_done", { ids, done: true })).toEqual({
    error: { code: "internal_error", message: expect.any(String), completed: [todo(2, "b", true)] },
  });
  expect(await call(service, "delete_todos", { ids })).toMatchObject({ error: { completed: ["2"] } });
});

test("add_todos creates only one to-do for repeated requests with the same idempotency key", async () => {
  await using service = startService();
  const given = { title: "once", idempotencyKey: 'k"\\1' };
  for (let time = 0; time < 2; time++)
    expect(await call(service, "add_todos", { todos: [given] })).toEqual({ todos: [todo(1, "once")] });
  expect(await call(service, "add_todos", { todos: [{ ...given, title: "other" }] })).toMatchObject({
    error: { code: "idempotency_key_reused" },
  });
});

test("add_todos gives each to-do its own key, so that a lost response adds nothing twice", async () => {
  const keys: (string | null)[] = [];
  const losesFirst: Fetch = async (url, init) => {
    const response = await fetch(url, init);
    keys.push(new Headers(init.headers).get("idempotency-key"));
    if (keys.length % 2 === 1) throw new TypeError("the response was lost");
    return response;
  };
  await using service = startService();
  const todos = [{ title: "same" }, { title: "same" }];
  expect(await call(service, "add_todos", { todos }, { retries: 1, fetch: losesFirst })).toEqual({
    todos: [todo(1, "same"), todo(2, "same")],
  });
  expect([keys.length, new Set(keys).size]).toEqual([4, 2]);
});

test("add_todos lists the to-dos that were added before a failure", async () => {
  await using service = startService({ store: openMemory({ maxTodos: 2 }) });
  const todos = ["a", "b", "c", "d"].map((title) => ({ title }));
  expect(await call(service, "add_todos", { todos })).toEqual({
    error: {
      code: "store_full",
      message: expect.stringContaining("Store full"),
      completed: [todo(1, "a"), todo(2, "b")],
    },
  });
});

test("add_todos adds nothing if two of the to-dos have the same idempotency key", async () => {
  await using service = startService();
  const todos = [
    { title: "k1", idempotencyKey: "s" },
    { title: "other", idempotencyKey: "t" },
    { title: "k1", idempotencyKey: "s" },
  ];
  expect(await call(service, "add_todos", { todos })).toEqual(
    validation("todos: two to-dos have the same idempotencyKey"),
  );
  expect(await call(service, "find_todos")).toEqual({ todos: [], matches: 0 });
});

const ID_RULE = "must be the id of a to-do, as find_todos returns it";
const adding = (one: unknown) => ({ todos: [{ title: "fine" }, one] });

test.each<[name: string, message: string, given: readonly Readonly<Record<string, unknown>>[]]>([
  ["find_todos", 'state: Invalid option: expected one of "all"|"open"|"done"', [{ state: "closed" }]],
  ["find_todos", "limit: ", [{ limit: 0 }, { limit: "5" }]],
  ["find_todos", "text: ", [{ text: "x".repeat(121) }]],
  ["find_todos", `after: ${ID_RULE}`, [{ after: "x&done=true" }]],
  ["find_todos", 'Unrecognized key: "filter"', [{ filter: "done" }]],
  ["add_todos", "todos: ", [{}, { todos: [] }, { todos: Array(101).fill({ title: "a" }) }]],
  ["add_todos", "todos[1].title: must not be empty", [adding({ title: "" })]],
  ["add_todos", "todos[1].title: must be at most 120 characters", [adding({ title: `${LONGEST}x` })]],
  [
    "add_todos",
    "todos[1].title: must not be empty; todos[1].title: must be at",
    [adding({ title: " ".repeat(121) })],
  ],
  [
    "add_todos",
    "todos[1].idempotencyKey: must be 1 to 255 visible",
    [adding({ title: "a", idempotencyKey: "a\nb" })],
  ],
  ["add_todos", 'todos[1]: Unrecognized key: "done"', [adding({ title: "a", done: true })]],
  ["set_done", "ids: ", [{ done: true }, { ids: Array(101).fill(1), done: true }]],
  ["set_done", "done: ", [{ ids: ["1"] }, { ids: ["1"], done: "true" }]],
  [
    "delete_todos",
    `ids[1]: ${ID_RULE}`,
    ["x", "", "-1", -1, 1.5, 2 ** 53, "1/..", "18446744073709551616", null].map((id) => ({ ids: ["1", id] })),
  ],
])("%s rejects invalid arguments with %j before it calls the service", async (name, message, given) => {
  await using service = startService({
    store: storeWith({ insert: fail, list: fail, setDone: fail, delete: fail }),
  });
  for (const one of given) expect(await call(service, name, one)).toEqual(validation(message));
});

test("a cancelled call rejects with the reason", async () => {
  await using service = startService();
  const controller = new AbortController();
  controller.abort(new Error("cancelled"));
  const options = { signal: controller.signal, describe: ({ message }: Error) => message };
  const rejected = await errorOf(callTool(todosOf(service), "find_todos", {}, options));
  expect(rejected).toHaveProperty("message", "cancelled");
});

function fail(): never {
  throw new Error("the service was called");
}
