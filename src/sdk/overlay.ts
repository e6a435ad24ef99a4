import { indexOf } from "./json.ts";
import { lead } from "./position.ts";
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
  /** With an unanswered create: the to-dos of the same title that are not the new one. */
  readonly others: Set<TodoId>;
  /** Absent until the service has answered. */
  position?: string | undefined;
}

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
  #position = "";

  /** Shows the effect of a write that has no answer yet. @param todos the service's list */
  add(key: unknown, { kind, todo }: Effect, todos: readonly Todo[]): void {
    const others = new Set<TodoId>();
    this.#entries.set(key, { kind, todo, others });
    if (kind !== "create") return;
    for (const { id, title } of [...todos, ...[...this.#entries.values()].map((entry) => entry.todo)])
      if (title === todo.title) others.add(id);
  }

  /** Returns the effect of a write, under the id that the service has given to a new to-do. */
  get(key: unknown): Effect | undefined {
    return this.#entries.get(key);
  }

  /** Takes back the effect of a write that was rejected or undone. */
  remove(key: unknown): void {
    this.#entries.delete(key);
  }

  /** Confirms a write. Its effect stays until the list contains it. */
  confirm(key: unknown, { kind, todo, position }: Confirmation): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const { id } = entry.todo;
    for (const other of this.#entries.values()) {
      if (entry.kind === "create") other.others.add(todo.id);
      if (other.todo.id === id) other.todo = { ...other.todo, id: todo.id };
    }
    Object.assign(entry, { kind, todo, position });
    if (position === undefined) this.remove(key);
    this.advance(this.#position);
  }

  /** The keys of the writes that have an answer. Read them when you request a list, and pass them to `advance()` with it. */
  get answered(): ReadonlySet<unknown> {
    const answered = [...this.#entries].filter(([, { position }]) => position !== undefined);
    return new Set(answered.map(([key]) => key));
  }

  /**
   * Says that the list has reached a position, with all changes until there.
   * @param answered the writes that had an answer when this list was requested. Absent if the position is an event's.
   */
  advance(position: string, answered: ReadonlySet<unknown> = new Set()): void {
    this.#position = position;
    for (const [key, entry] of this.#entries) {
      if (entry.position === undefined) continue;
      const ahead = lead(position, entry.position);
      // A store of another epoch that does not have an answered write has lost it.
      if (ahead >= 0 || (Number.isNaN(ahead) && answered.has(key))) this.#removeUntil(key, entry);
    }
  }

  /** Removes a write, and the earlier ones of its to-do. Those of a lost history would show again without it. */
  #removeUntil(key: unknown, { todo }: Entry): void {
    for (const [other, entry] of this.#entries) {
      if (entry.todo.id === todo.id) this.remove(other);
      if (other === key) return;
    }
  }

  /** Whether an effect needs a new list to leave, because its answer belongs to another epoch than the list. */
  get needsList(): boolean {
    return [...this.#entries.values()].some(
      ({ position }) => position !== undefined && Number.isNaN(lead(this.#position, position)),
    );
  }

  /** Returns the service's list with all effects, as a new array. */
  apply(todos: readonly Todo[]): Todo[] {
    const creates = [...this.#entries.values()].filter(
      ({ kind, position }) => kind === "create" && position === undefined,
    );
    // Without those that may be the new ones, because these are shown already.
    const shown = todos.filter(
      ({ id, title }) => !creates.some(({ todo, others }) => todo.title === title && !others.has(id)),
    );
    for (const { kind, todo } of this.#entries.values()) {
      const index = indexOf(shown, todo.id);
      const current = shown[index];
      const hasId = current?.id === todo.id;
      // Titles never change. Another title under this id belongs to the list of another store.
      const isShown = hasId && current.title === todo.title;
      // The list can have a new to-do before a repeated response, and with later changes.
      // The service rejects a blank title, so that its row would only flash.
      if (kind === "create" && !isShown && todo.title.trim() !== "") shown.splice(index, Number(hasId), todo);
      else if (kind === "delete" && isShown) shown.splice(index, 1);
      else if (kind === "setDone" && isShown) shown[index] = todo;
    }
    return shown;
  }
}
