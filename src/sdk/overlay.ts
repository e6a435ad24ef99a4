import type { Snapshot } from "./confirmed-list.ts";
import { compareIds, findTodo } from "./json.ts";
import { lead } from "./position.ts";
import { newTodo } from "./todo.ts";
import type { Todo, TodoId } from "./types.ts";

/** The effect of one write on the list, until the list contains it. */
export interface Effect {
  readonly kind: "create" | "setDone" | "delete";
  /** The to-do after the write, or before its deletion. Until the service has answered, a new one has an id of `newId()`. */
  readonly todo: Todo;
}

/** What a response says about a write. */
export interface Confirmation extends Effect {
  /** Where the service decided the write. Without it, the effect leaves at once. */
  readonly position: string | undefined;
}

interface Entry extends Effect {
  kind: Effect["kind"];
  todo: Todo;
  /** The newest to-do that was known when the write was made. An unanswered create can only have made a later one. */
  after: TodoId;
  /** Absent until the service has answered. */
  position?: string | undefined;
  /** The number of the answer. */
  answer?: number;
}

/** How many new to-dos can still be addressed by the id that they had before their answer. */
const MAX_IDS = 1000;

let lastId = 10n ** 20n;

/** Returns digits that sort after every id of the service, which has at most 20 digits. */
export const newId = (): TodoId => String(++lastId);

/** Returns whether an id is one of `newId()`. */
export const isNewId = (id: TodoId): boolean => id.length > 20;

/**
 * The effects of writes on top of the service's list. Each shows exactly once: a confirmed write leaves when the list's
 * position has the same epoch and at least its number, or when a list of another epoch was requested after the response.
 */
export class Overlay {
  /** By a key of the caller, in the order of the calls. */
  readonly #entries = new Map<unknown, Entry>();
  /** The ids that the service gave to the latest new to-dos, by those that they had before. */
  readonly #ids = new Map<TodoId, TodoId>();
  #position = "";
  /** An effect needs a new list to leave, because its answer belongs to another epoch than the list. */
  needsList = false;
  /** The number of answers so far. Read it when you request a list, and pass it to `load()`. */
  answers = 0;

  /** Shows the effect of a write that has no answer yet. @param after the id of the newest to-do that the service has */
  add(key: unknown, { kind, todo }: Effect, after: TodoId): void {
    this.#entries.set(key, { kind, todo, after });
  }

  /** Returns the effect of a write, under the id that the service has given to a new to-do. */
  get(key: unknown): Effect | undefined {
    return this.#entries.get(key);
  }

  /** Takes back the effect of a write that was rejected or undone. */
  remove(key: unknown): void {
    this.#entries.delete(key);
  }

  /** Forgets all writes. */
  clear(): void {
    this.#entries.clear();
    this.#ids.clear();
  }

  /** Confirms a write. Its effect stays until the list contains it. */
  confirm(key: unknown, { kind, todo, position }: Confirmation): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (entry.todo.id !== todo.id) this.#rename(entry.todo.id, todo.id);
    Object.assign(entry, { kind, todo, position, answer: ++this.answers });
    const ahead = lead(this.#position, position);
    if (position === undefined) this.remove(key);
    else if (ahead >= 0) this.#removeUntil(key, entry);
    else this.needsList ||= Number.isNaN(ahead);
  }

  #rename(before: TodoId, id: TodoId): void {
    for (const entry of this.#entries.values())
      if (entry.todo.id === before) entry.todo = { ...entry.todo, id };
    this.#ids.set(before, id);
    const [oldest = ""] = this.#ids.keys();
    if (this.#ids.size > MAX_IDS) this.#ids.delete(oldest);
  }

  /**
   * Says that the list has reached a position, with all changes until there.
   * @param answers the number of `answers` when this list was requested. Absent if the position is an event's
   */
  advance({ todos, position }: Snapshot, answers = 0): void {
    const newest = todos.at(-1)?.id ?? "";
    this.needsList = false;
    for (const [key, entry] of this.#entries) {
      const { answer } = entry;
      const ahead = lead(position, entry.position ?? this.#position);
      const isOther = Number.isNaN(ahead);
      // A store of another epoch that does not have an answered write has lost it.
      if (answer !== undefined && (ahead >= 0 || (isOther && answer <= answers)))
        this.#removeUntil(key, entry);
      else if (answer !== undefined) this.needsList ||= isOther;
      // A store that has lost its to-dos begins with the first id again.
      else if (isOther && this.#position !== "" && compareIds(newest, entry.after) < 0) entry.after = "";
    }
    this.#position = position;
  }

  /** Removes a write, and the earlier ones of its to-do. Those of a lost history would show again without it. */
  #removeUntil(key: unknown, { todo }: Entry): void {
    for (const [other, entry] of this.#entries) {
      if (entry.todo.id === todo.id) this.remove(other);
      if (other === key) return;
    }
  }

  /**
   * Returns a to-do of the service's list with all effects. If there is none, it has no title, so that its effects are not shown.
   * @param given the id, or the one that a new to-do had before
   */
  find(todos: readonly Todo[], given: TodoId): Todo {
    const id = this.#ids.get(given) ?? given;
    let found = findTodo(todos, id);
    for (const entry of this.#entries.values()) if (entry.todo.id === id) found = applyEffect(found, entry);
    return found ?? newTodo(id, "");
  }

  /** Returns the service's list with all effects. */
  apply(todos: readonly Todo[]): readonly Todo[] {
    if (this.#entries.size === 0) return todos;
    const visible = this.#withoutCreated(todos);
    const changed = new Map<TodoId, Todo | undefined>();
    for (const entry of this.#entries.values()) {
      const { id } = entry.todo;
      changed.set(id, applyEffect(changed.has(id) ? changed.get(id) : findTodo(visible, id), entry));
    }
    const left = visible.filter(({ id }) => !changed.has(id));
    const shown = [...changed.values()].filter((todo) => todo !== undefined);
    return left.concat(shown).sort((a, b) => compareIds(a.id, b.id));
  }

  /** Returns the to-dos without those that may be the ones of unanswered creates, because these are shown already. */
  #withoutCreated(todos: readonly Todo[]): readonly Todo[] {
    const creates = [...this.#entries.values()].filter((entry) => entry.kind === "create" && !entry.answer);
    // The oldest create of a title comes last, and decides.
    const newest = new Map(creates.reverse().map(({ todo, after }) => [todo.title, after]));
    const own = new Set(this.#ids.values());
    return todos.filter(({ id, title }) => compareIds(id, newest.get(title) ?? id) <= 0 || own.has(id));
  }
}

/** Returns what a write makes of a to-do, which is undefined while it is not shown. */
function applyEffect(current: Todo | undefined, { kind, todo }: Effect): Todo | undefined {
  // Titles never change. Another title under this id belongs to the list of another store.
  const isShown = current?.title === todo.title;
  // The list can have a new to-do before a repeated response, and with later changes.
  // The service rejects a blank title, so that its row would only flash.
  if (kind === "create") return isShown || todo.title.trim() === "" ? current : todo;
  if (!isShown) return current;
  return kind === "delete" ? undefined : todo;
}
