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

/** A write without an answer. What it knows of the list matters when it creates a to-do. */
export interface Write extends Effect {
  todo: Todo;
  /** The newest to-do when it was made. The answer can only be a newer one, unless another store began with the first id again. */
  readonly after?: TodoId | undefined;
  /** The position of the list then. Absent before the first list. */
  readonly position?: string | undefined;
}

/** What a response says about a write. */
export interface Confirmation extends Effect {
  /** Where the service decided the write. Without it, the effect leaves at once. */
  readonly position: string | undefined;
}

interface Answered extends Confirmation {
  /** The number of the answer. */
  readonly answer: number;
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
  /** The writes without an answer, in order. */
  pending: Write[] = [];
  /** The answered writes that the list does not contain yet, in order. */
  #answered: Answered[] = [];
  /** The ids that the service gave to the latest new to-dos, by those that they had before. */
  readonly #ids = new Map<TodoId, TodoId>();
  #position = "";
  /** An effect needs a new list to leave, because its answer belongs to another epoch than the list. */
  needsList = false;
  /** The number of answers so far. Read it when you request a list, and pass it to `advance()`. */
  answers = 0;

  /** Forgets all writes. */
  clear(): void {
    this.pending = [];
    this.#answered = [];
    this.#ids.clear();
  }

  /**
   * Confirms a write that is not pending any more. Its effect stays until the list contains it.
   * @param before the id under which the to-do was sent
   */
  confirm(before: TodoId, confirmation: Confirmation): void {
    const { todo, position } = confirmation;
    if (before !== todo.id) this.#rename(before, todo.id);
    const answer = ++this.answers;
    const ahead = position ? lead(this.#position, position) : 0;
    this.needsList ||= Number.isNaN(ahead);
    if (ahead >= 0) this.#answered = this.#answered.filter((other) => other.todo.id !== todo.id);
    else this.#answered.push({ ...confirmation, answer });
  }

  #rename(before: TodoId, id: TodoId): void {
    for (const write of this.pending) if (write.todo.id === before) write.todo = { ...write.todo, id };
    this.#ids.set(before, id);
    const [oldest = ""] = this.#ids.keys();
    if (this.#ids.size > MAX_IDS) this.#ids.delete(oldest);
  }

  /**
   * Says that the list has reached a position, with all changes until there.
   * @param answers the number of `answers` when this list was requested. Absent if the position is an event's
   */
  advance(position: string, answers = 0): void {
    const contained = new Set<TodoId>();
    // Backwards: the earlier writes to a to-do leave, too. Those of a lost history would show again.
    const left = this.#answered.reverse().filter(({ todo, position: decided, answer }) => {
      const ahead = lead(position, decided);
      // A store of another epoch that does not have an answered write has lost it.
      if (ahead >= 0 || (Number.isNaN(ahead) && answer <= answers)) contained.add(todo.id);
      return !contained.has(todo.id);
    });
    this.#answered = left.reverse();
    this.needsList = left.some((write) => Number.isNaN(lead(position, write.position)));
    this.#position = position;
  }

  /**
   * Returns a to-do of the service's list with all effects. If there is none, it has no title, so that its effects are not shown.
   * @param given the id, or the one that a new to-do had before
   */
  find(todos: readonly Todo[], given: TodoId, pending = this.pending): Todo {
    const id = this.#ids.get(given) ?? given;
    const writes = [...this.#answered, ...pending].filter(({ todo }) => todo.id === id);
    return writes.reduce(applyEffect, findTodo(todos, id)) ?? newTodo(id, "");
  }

  /** Returns the service's list with all effects. */
  apply(todos: readonly Todo[]): readonly Todo[] {
    const writes = [...this.#answered, ...this.pending];
    if (!writes.length) return todos;
    const visible = this.#withoutCreated(todos);
    const changed = new Map<TodoId, Todo | undefined>();
    for (const write of writes) {
      const { id } = write.todo;
      changed.set(id, applyEffect(changed.has(id) ? changed.get(id) : findTodo(visible, id), write));
    }
    const left = visible.filter(({ id }) => !changed.has(id));
    const shown = [...changed.values()].filter((todo) => todo !== undefined);
    return left.concat(shown).sort((a, b) => compareIds(a.id, b.id));
  }

  /** Returns the to-dos without those that may be the ones of unanswered creates, because these are shown already. */
  #withoutCreated(todos: readonly Todo[]): readonly Todo[] {
    const last = todos.at(-1)?.id ?? "";
    const newest = new Map<string, TodoId>();
    // The oldest create of a title decides, so it comes last.
    for (const { kind, todo, after = "", position } of [...this.pending].reverse()) {
      const isOther = position && Number.isNaN(lead(this.#position, position));
      if (kind === "create") newest.set(todo.title, isOther && compareIds(last, after) < 0 ? "" : after);
    }
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
