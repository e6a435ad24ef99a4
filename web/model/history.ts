import type { TodoId } from "../../src/sdk/client.ts";
import { findTodo } from "../../src/sdk/json.ts";
import { isNewId } from "../../src/sdk/overlay.ts";
import { type Change, type ChangeKind, INVERSES, isDeletion, newId, type Target } from "./change.ts";
import type { Outbox } from "./outbox.ts";
import type { State } from "./state.ts";

/** Something that the user did in this window. */
export interface Step {
  readonly kind: ChangeKind;
  /** With the ids of the time when it was done. */
  readonly targets: readonly Target[];
  /** What the outbox has of it, unless it is sent. */
  readonly changes: readonly Change[];
  /** Moves the focus back to a to-do. */
  readonly restoreFocus: (id: TodoId) => void;
}

/** What the user did in this window, in order, and what was undone. It lasts as long as the page. */
export class History {
  readonly #outbox: Outbox;
  readonly #state: State;
  #done: readonly Step[] = [];
  #undone: readonly Step[] = [];
  /** The ids under which to-dos were created again, by their ids before. */
  readonly #renewed = new Map<TodoId, TodoId>();

  constructor(outbox: Outbox, state: State) {
    this.#outbox = outbox;
    this.#state = state;
  }

  /** The step that would be undone. */
  get last(): Step | undefined {
    return this.#done.at(-1);
  }

  /** The step that would be redone. */
  get undone(): Step | undefined {
    return this.#undone.at(-1);
  }

  /** Changes to-dos. What was undone cannot be redone any more. */
  do(kind: ChangeKind, targets: readonly Target[], restoreFocus: Step["restoreFocus"]): Step {
    this.#undone = [];
    return this.#add(kind, targets, restoreFocus);
  }

  #add(kind: ChangeKind, targets: readonly Target[], restoreFocus: Step["restoreFocus"]): Step {
    const { since } = this.#state;
    const added = kind === "created" ? targets.map((target) => ({ ...target, since })) : targets;
    const changes = isDeletion(kind)
      ? this.#outbox.hold(kind, added)
      : this.#outbox.add(kind, added, this.#findConfirmed(kind, targets));
    const step = { kind, targets, changes, restoreFocus };
    this.#done = [...this.#done, step];
    return step;
  }

  /** Undoes the last step. Returns the titles of to-dos that someone has changed since, which stay as they are. */
  undo(): readonly string[] {
    const step = this.last;
    if (step === undefined) return [];
    const { kind } = step;
    this.#done = this.#done.slice(0, -1);
    const { targets, skipped } = isDeletion(kind)
      ? this.#selectLeft(step)
      : this.#select(step, ({ done = false }) => (kind === "created" ? done : kind === "done"));
    if (isDeletion(kind)) this.#outbox.withdraw(step.changes);
    else if (targets.length > 0) {
      const inverse = INVERSES[kind];
      this.#outbox.add(inverse, targets, this.#findConfirmed(inverse, targets));
    }
    if (targets.length > 0) this.#undone = [...this.#undone, { ...step, targets }];
    return skipped;
  }

  /** Does what was undone last again. Returns undefined if there is nothing. */
  redo(): { readonly step: Step | undefined; readonly skipped: readonly string[] } | undefined {
    const { undone } = this;
    if (undone === undefined) return undefined;
    this.#undone = this.#undone.slice(0, -1);
    const { kind, restoreFocus } = undone;
    const { targets, skipped } =
      kind === "created"
        ? { targets: undone.targets.map((target) => this.#renew(target)), skipped: [] }
        : this.#select(undone, () => (kind === "deleted" ? undefined : kind !== "done"));
    const step = targets.length > 0 ? this.#add(kind, targets, restoreFocus) : undefined;
    return { step, skipped };
  }

  /** Returns the id of a to-do now: the service may have chosen it, or the to-do may have been created again. */
  resolve(id: TodoId): TodoId {
    const renewed = this.#renewed.get(id) ?? id;
    const created = this.#state.created.get(renewed)?.id ?? renewed;
    return created === id ? id : this.resolve(created);
  }

  #renew(target: Target): Target {
    const id = newId();
    this.#renewed.set(this.resolve(target.id), id);
    return { ...target, id };
  }

  /** Returns the targets that still have a value, and the titles of the others. Without a value, they must exist. */
  #select({ targets }: Step, isDone: (target: Target) => boolean | undefined) {
    const { todos } = this.#state;
    const selected: Target[] = [];
    const skipped: string[] = [];
    for (const target of targets) {
      const id = this.resolve(target.id);
      const todo = findTodo(todos, id);
      const isSame = todo?.title === target.title && todo.done === (isDone(target) ?? todo.done);
      if (isSame) selected.push({ ...target, id });
      else skipped.push(target.title);
    }
    return { targets: selected, skipped };
  }

  /** Returns the to-dos that the service has as a change leaves them, so far as this window knows. */
  #findConfirmed(kind: ChangeKind, targets: readonly Target[]): ReadonlySet<TodoId> {
    const { confirmed } = this.#state;
    const ids = targets.map(({ id }) => id);
    return new Set(ids.filter((id) => findTodo(confirmed, id)?.done === (kind === "done")));
  }

  /** Returns the targets that nobody has deleted, and the titles of the others. */
  #selectLeft({ targets }: Step) {
    const { confirmed, position } = this.#state;
    const isLeft = ({ id }: Target): boolean => {
      const current = this.resolve(id);
      return position === undefined || isNewId(current) || findTodo(confirmed, current) !== undefined;
    };
    const gone = targets.filter((target) => !isLeft(target));
    return { targets: targets.filter(isLeft), skipped: gone.map(({ title }) => title) };
  }

  /** Forgets the deletions that are sent, and what was done to their to-dos before. */
  forgetSent(): void {
    const isSent = ({ kind, changes }: Step): boolean => isDeletion(kind) && !this.#outbox.isHeld(changes);
    const sent = this.#done.filter(isSent).flatMap(({ targets }) => targets.map(({ id }) => id));
    if (sent.length > 0) this.forget(new Set(sent));
  }

  /** Forgets what was done to some to-dos, except a deletion that is held: it can still be undone. */
  forget(ids: ReadonlySet<TodoId>): void {
    const isLeft = ({ id }: Target): boolean => !ids.has(id) && !ids.has(this.resolve(id));
    const isKept = ({ targets, changes }: Step): boolean =>
      targets.every(isLeft) || this.#outbox.isHeld(changes);
    this.#done = this.#done
      .map((step) => (isKept(step) ? step : { ...step, targets: step.targets.filter(isLeft) }))
      .filter(({ targets }) => targets.length > 0);
  }
}
