import { expect, test } from "bun:test";
import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { type Change, type ChangeKind, newId, type Target } from "./change.ts";
import { State } from "./state.ts";

type Source = ConstructorParameters<typeof State>[0];

/** Changes in memory, and what the service answers to them. */
class Changes extends EventTarget implements Source {
  changes: readonly Change[] = [];
  readonly created = new Map<TodoId, Todo>();
  onAnswers: Source["onAnswers"] = () => {};

  set(...changes: readonly Change[]): void {
    this.changes = changes;
    this.dispatchEvent(new Event("change"));
  }

  answer(change: Change, kind: "create" | "setDone" | "delete", todo: Todo, position: string): void {
    for (const { id } of change.targets) this.onAnswers([{ id, kind, todo, position }]);
  }
}

const open = (id: TodoId, title: string): Todo => ({ id, title, done: false });
const changeOf = (kind: ChangeKind, ...targets: readonly Target[]): Change => ({
  key: newId(),
  kind,
  targets,
});
const shown = ({ todos }: State): string[] => todos.map(({ title, done }) => (done ? `(${title})` : title));

test("a new to-do is shown once when the list has it before its answer, beside an older one of the same title", () => {
  const changes = new Changes();
  const state = new State(changes);
  state.setList([open("1", "milk")], "a-1");
  const add = changeOf("created", { ...open(newId(), "milk"), ...state.since });
  changes.set(add);
  expect(shown(state)).toEqual(["milk", "milk"]);
  state.setList([open("1", "milk"), open("2", "milk")], "a-2");
  expect(shown(state)).toEqual(["milk", "milk"]);
  changes.answer(add, "create", open("2", "milk"), "a-2");
  changes.set();
  expect(state.todos).toEqual([open("1", "milk"), open("2", "milk")]);
});

test("a to-do that is cleared is shown again when someone reopens it", () => {
  const changes = new Changes();
  const state = new State(changes);
  const done = [1, 2].map((id): Todo => ({ id: String(id), title: `to-do ${id}`, done: true }));
  state.setList(done, "a-1");
  const clear = changeOf("cleared", ...done);
  changes.set(clear);
  expect(shown(state)).toEqual([]);
  state.setList([{ ...done[0], id: "1", title: "to-do 1", done: false }, ...done.slice(1)], "a-2");
  expect(shown(state)).toEqual(["to-do 1"]);
  expect(state.findReopened(clear).map(({ id }) => id)).toEqual(["1"]);
});

test("a to-do that was cleared stays hidden after the answer until the list has the deletion", () => {
  const changes = new Changes();
  const state = new State(changes);
  const todo: Todo = { id: "1", title: "one", done: true };
  state.setList([todo], "a-1");
  const clear = changeOf("cleared", todo);
  changes.set(clear);
  changes.answer(clear, "delete", todo, "a-3");
  changes.set();
  expect(shown(state)).toEqual([]);
  state.setList([todo, open("2", "two")], "a-2");
  expect(shown(state)).toEqual(["two"]);
  state.setList([open("2", "two")], "a-3");
  expect(shown(state)).toEqual(["two"]);
});

test("what the service has of a to-do is what it has answered, although the list lacks that", () => {
  const changes = new Changes();
  const state = new State(changes);
  state.setList([open("1", "one")], "a-1");
  const tick = changeOf("done", open("1", "one"));
  changes.set(tick);
  expect(state.findConfirmed("1").done).toBe(false);
  changes.answer(tick, "setDone", { ...open("1", "one"), done: true }, "a-2");
  changes.set();
  expect(state.findConfirmed("1").done).toBe(true);
});
