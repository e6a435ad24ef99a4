import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { type Change, type ChangeKind, newId, type Target } from "./change.ts";
import { markSent, rename, replaceUnsent, selectReady, settle, toKeys } from "./edits.ts";

const ROUNDS = Number(process.env.TODO_TEST_EDITS_ROUNDS ?? 1000);
const SENT = "a-1";

const step = fc.record({
  what: fc.constantFrom("add", "addDone", "toggle", "toggle", "delete", "clear", "send", "send", "close"),
  /** Chooses a to-do or a group of changes. */
  at: fc.nat({ max: 20 }),
  /** What becomes of the requests, in turn. */
  outcomes: fc.array(fc.constantFrom("ok", "ok", "ok", "lost", "failed", "rejected"), { minLength: 1 }),
});

function createServer() {
  const todos = new Map<TodoId, { title: string; done: boolean }>();
  const keys = new Map<TodoId, TodoId>();
  let created = 0;
  const create = ({ id: key, title }: Target): Todo => {
    const id = keys.get(key) ?? String(++created);
    if (!keys.has(key)) todos.set(id, { title, done: false });
    keys.set(key, id);
    return { id, title, done: false };
  };
  return {
    todos,
    knows: (key: TodoId): boolean => keys.has(key),
    write: (kind: ChangeKind, target: Target): Todo | undefined => {
      if (kind === "created") return create(target);
      const todo = todos.get(target.id);
      if (todo === undefined) return undefined;
      // The page asks before it clears.
      if (kind === "deleted" || (kind === "cleared" && todo.done)) todos.delete(target.id);
      else if (kind !== "cleared") todo.done = kind === "done";
      return undefined;
    },
  };
}

function createPages() {
  let changes: readonly Change[] = [];
  let own = new Set<string>();
  const created = new Map<TodoId, Todo>();
  return {
    created,
    get changes(): readonly Change[] {
      return changes;
    },
    edit: (edit: (changes: readonly Change[]) => readonly Change[]): void => {
      const before = toKeys(changes);
      changes = edit(changes);
      for (const { key } of changes) if (!before.has(key)) own.add(key);
    },
    /** Returns what the page sends. The next page knows no answers. */
    close: (): readonly Change[] => {
      const isOwn = ({ key }: Change): boolean => own.has(key);
      const sending = selectReady(changes, new Set(), isOwn, Number.POSITIVE_INFINITY).flat();
      for (const { key } of sending) changes = markSent(changes, key, SENT);
      own = new Set();
      created.clear();
      return sending;
    },
  };
}

test("the service gets what the user sees, whatever is lost, rejected or sent while closing", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const server = createServer();
      const pages = createPages();
      /** What the user sees: whether the to-do of each title is done. */
      const seen = new Map<string, boolean>();
      const rejected = new Set<TodoId>();
      const findId = (title: string): TodoId => {
        const known = [...server.todos].find(([, todo]) => todo.title === title);
        const added = pages.changes.flatMap(({ kind, targets }) => (kind === "created" ? targets : []));
        return added.find((target) => target.title === title)?.id ?? known?.[0] ?? newId();
      };
      const change = (kind: ChangeKind, titles: readonly string[]): void => {
        const targets = titles.map((title): Target => {
          const id = findId(title);
          return { id, title, done: server.todos.get(id)?.done === true };
        });
        if (targets.length === 0) return;
        const part = { key: newId(), kind, targets };
        const confirmed = targets.filter(({ id }) => server.todos.get(id)?.done === (kind === "done"));
        pages.edit((changes) => replaceUnsent(changes, [part], new Set(confirmed.map(({ id }) => id))));
      };
      const send = (group: readonly Change[], outcomes: Iterator<string>): void => {
        for (const { key } of group) {
          pages.edit((changes) => markSent(changes, key, SENT));
          const current = pages.changes.find((one) => one.key === key);
          const done = new Set<TodoId>();
          let isFailed = false;
          for (const target of current?.targets ?? []) {
            if (current === undefined) break;
            const { kind } = current;
            const { value } = outcomes.next();
            if (
              rejected.has(target.id) ||
              (kind === "created" && value === "rejected" && !server.knows(target.id))
            ) {
              // The service rejects it each time.
              rejected.add(target.id);
              seen.delete(target.title);
              done.add(target.id);
            } else {
              const todo = value === "failed" ? undefined : server.write(kind, target);
              isFailed = value === "failed" || value === "lost";
              if (isFailed) break;
              if (todo !== undefined) pages.created.set(target.id, todo);
              done.add(target.id);
            }
          }
          const { created } = pages;
          pages.edit((changes) => settle(changes, key, done, created));
          if (isFailed) return;
        }
      };
      const ready = (): readonly (readonly Change[])[] =>
        selectReady(pages.changes, new Set(), () => true, 1);

      for (const [index, { what, at, outcomes }] of steps.entries()) {
        const titles = [...seen.keys()];
        const title = titles[at % titles.length];
        if (what === "add" || what === "addDone") {
          seen.set(`to-do ${index}`, what === "addDone");
          change("created", [`to-do ${index}`]);
          if (what === "addDone") change("done", [`to-do ${index}`]);
        } else if (what === "toggle" && title !== undefined) {
          seen.set(title, !seen.get(title));
          change(seen.get(title) === true ? "done" : "open", [title]);
        } else if (what === "delete" && title !== undefined) {
          change("deleted", [title]);
          seen.delete(title);
        } else if (what === "clear") {
          const cleared = titles.filter((one) => seen.get(one));
          change("cleared", cleared);
          for (const one of cleared) seen.delete(one);
        } else if (what === "send") {
          const groups = ready();
          const group = groups[at % groups.length];
          if (group !== undefined) send(group, outcomes.values());
        } else if (what === "close") {
          const results = outcomes.values();
          for (const { kind, targets } of pages.close())
            for (const target of targets) if (results.next().value === "ok") server.write(kind, target);
        }
        pages.edit((changes) => rename(changes, pages.created));
      }
      for (let rounds = 0; pages.changes.length > 0; rounds++) {
        expect(rounds).toBeLessThan(100);
        for (const group of ready()) send(group, [].values());
      }
      const served = [...server.todos.values()].map(({ title, done }) => [title, done]);
      expect(served.sort()).toEqual([...seen].sort());
    }),
    { numRuns: ROUNDS },
  );
});

const changeOf = (kind: ChangeKind, ...ids: readonly TodoId[]): Change => ({
  key: newId(),
  kind,
  targets: ids.map((id) => ({ id, title: id, done: false })),
});

test("markSent marks one change, once", () => {
  const [first, second] = [changeOf("done", "1"), changeOf("done", "2")];
  const sent = markSent([first, second], first.key, "e-1");
  expect(sent).toEqual([{ ...first, sent: "e-1" }, second]);
  expect(markSent(sent, first.key, "e-2")).toEqual(sent);
});

test("selectReady sends one change to many to-dos at the same time, beside all others", () => {
  const ticks = Array.from({ length: 3 }, (_, index) => changeOf("done", String(index)));
  const [bulk, otherBulk] = [changeOf("done", "100", "101"), changeOf("done", "102", "103")];
  const many = [bulk, otherBulk];
  const all = [...many, ...ticks];
  const first = selectReady(all, new Set(), () => true, 1);
  expect(first).toEqual([bulk, ...ticks].map((change) => [change]));
  expect(selectReady(all, toKeys(first.flat()), () => true, 1)).toEqual([]);
  expect(selectReady(many, new Set(), () => true, 2)).toEqual([[bulk], [otherBulk]]);
  expect(selectReady(many, toKeys(ticks), () => true, 1)).toEqual([[bulk]]);
  expect(selectReady(many, toKeys([bulk]), () => true, 1)).toEqual([]);
  expect(selectReady(all, new Set(), (change) => change === otherBulk, 1)).toEqual([[otherBulk]]);
});

test("selectReady sends new to-dos in one group, one group at a time, and what waits for none beside them", () => {
  const [first, second] = [changeOf("created", newId()), changeOf("created", newId())];
  const tick = changeOf("done", "1");
  const dependent = changeOf("done", first.targets[0]?.id ?? "");
  const all = [first, second, dependent, tick];
  expect(selectReady(all, new Set(), () => true, 1)).toEqual([[first, second], [tick]]);
  expect(selectReady(all, toKeys([first]), () => true, 1)).toEqual([[tick]]);
  // Another window has the new to-do's id already.
  expect(selectReady([dependent], new Set(), () => true, 1)).toEqual([]);
});
