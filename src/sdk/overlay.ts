import { compareIds, findTodo, indexOf } from "./json.ts";
import { includes, parsePosition } from "./position.ts";
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

interface Entry {
  effect: Effect;
  /** With an unanswered create: the to-dos of the same title that are not the new one. */
  readonly others: Set<TodoId>;
  /** Absent until the service has answered. */
  position?: string;
  /** Whether a list was requested after the response. */
  isReloaded: boolean;
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
  /** The epochs that the list had before. */
  readonly #left = new Set<string>();
  #position = "";

  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  /** Shows the effect of a write that has no answer yet. @param todos the service's list */
  add(key: unknown, effect: Effect, todos: readonly Todo[]): void {
    const same = todos.filter(({ title }) => title === effect.todo.title).map(({ id }) => id);
    const created = [...this.#entries.values()].filter(isCreate).map((entry) => entry.effect.todo.id);
    this.#entries.set(key, { effect, others: new Set([...same, ...created]), isReloaded: false });
  }

  /** Returns the effect of a write, under the id that the service has given to a new to-do. */
  get(key: unknown): Effect | undefined {
    return this.#entries.get(key)?.effect;
  }

  /** Takes back the effect of a write that was rejected or undone. */
  remove(key: unknown): void {
    this.#entries.delete(key);
  }

  /** Confirms a write. Its effect stays until the list contains it. */
  confirm(key: unknown, { kind, todo, position }: Confirmation): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const { id } = entry.effect.todo;
    for (const one of this.#entries.values()) {
      if (entry.effect.kind === "create") one.others.add(todo.id);
      if (one.effect.todo.id === id)
        one.effect = { ...one.effect, todo: { ...one.effect.todo, id: todo.id } };
    }
    entry.effect = { kind, todo };
    if (position === undefined) this.#entries.delete(key);
    else entry.position = position;
    this.#removeContained();
  }

  /** Call this when a list is requested, and the returned function with its position when it has arrived. */
  requestList(): (position: string) => void {
    const answered = [...this.#entries.values()].filter(({ position }) => position !== undefined);
    return (position) => {
      for (const entry of answered) entry.isReloaded = true;
      this.advance(position);
    };
  }

  /** Says that the list has reached a position, with all changes until there. */
  advance(position: string): void {
    this.#left.add(parsePosition(this.#position).epoch);
    this.#left.delete(parsePosition(position).epoch);
    this.#position = position;
    this.#removeContained();
  }

  /** Whether an effect needs a new list to leave, because its response came after the list had left its epoch. */
  get needsList(): boolean {
    return [...this.#entries.values()].some(
      ({ position }) => position !== undefined && this.#left.has(parsePosition(position).epoch),
    );
  }

  #removeContained(): void {
    const { epoch } = parsePosition(this.#position);
    for (const [key, { position, isReloaded }] of this.#entries) {
      if (position === undefined) continue;
      const isReplaced = isReloaded && parsePosition(position).epoch !== epoch;
      if (isReplaced || includes(this.#position, position)) this.#entries.delete(key);
    }
  }

  /** Returns the service's list with all effects. Returns the same array if there are none. */
  apply(todos: readonly Todo[]): readonly Todo[] {
    if (this.#entries.size === 0) return todos;
    /** To-dos that differ from the service's list, by id; undefined for those that are not shown. */
    const changes = new Map<TodoId, Todo | undefined>();
    for (const { id } of this.#unanswered(todos)) changes.set(id, undefined);
    for (const { effect } of this.#entries.values()) {
      const { kind, todo } = effect;
      const shown = changes.has(todo.id) ? changes.get(todo.id) : findTodo(todos, todo.id);
      // Titles never change. Another title under this id belongs to the list of another store.
      const isShown = shown?.title === todo.title;
      // The list can have a new to-do before a repeated response, and with later changes.
      if (kind === "create" && !isShown) changes.set(todo.id, todo);
      else if (kind !== "create" && isShown)
        changes.set(todo.id, kind === "delete" ? undefined : shown.done === todo.done ? shown : todo);
    }
    const shown: (Todo | undefined)[] = todos.slice();
    const added: Todo[] = [];
    for (const [id, todo] of changes) {
      const index = indexOf(todos, id);
      if (todos[index]?.id === id) shown[index] = todo;
      else if (todo !== undefined) added.push(todo);
    }
    const all = [...shown.filter((todo) => todo !== undefined), ...added];
    return added.length === 0 ? all : all.sort((a, b) => compareIds(a.id, b.id));
  }

  /** Returns the to-dos that may be new ones whose creation has no answer yet, so that the list shows them once. */
  #unanswered(todos: readonly Todo[]): readonly Todo[] {
    const creates = [...this.#entries.values()].filter(
      (entry) => isCreate(entry) && entry.position === undefined,
    );
    const titles = new Set(creates.map(({ effect }) => effect.todo.title));
    const isNew = ({ id, title }: Todo): boolean =>
      titles.has(title) &&
      creates.some(({ effect, others }) => effect.todo.title === title && !others.has(id));
    return titles.size === 0 ? [] : todos.filter(isNew);
  }
}

const isCreate = ({ effect }: Entry): boolean => effect.kind === "create";
