import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { findTodo } from "../../src/sdk/json.ts";
import { isSameTodo } from "../../src/sdk/todo.ts";
import { type Change, type ChangeKind, INVERSES, isDeletion, newId, type Target, toWrite } from "./change.ts";
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

/** The titles of to-dos that stay as they are. */
interface Skipped {
  readonly changed: readonly string[];
  /** The ones that were deleted. */
  readonly gone: readonly string[];
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
    const changes = isDeletion(kind) ? this.#outbox.hold(kind, targets) : this.#addToOutbox(kind, targets);
    const step = { kind, targets, changes, restoreFocus };
    this.#done = [...this.#done, step];
    return step;
  }

  #addToOutbox(kind: ChangeKind, targets: readonly Target[]): readonly Change[] {
    const { since } = this.#state;
    if (kind !== "created") return this.#outbox.add(kind, targets, this.#findConfirmed(kind, targets));
    // The service creates open to-dos.
    const open = targets.map((target) => ({ ...target, done: false, ...since }));
    const done = targets.filter((target) => target.done);
    const changes = this.#outbox.add(kind, open, new Set());
    return done.length > 0 ? [...changes, ...this.#outbox.add("done", done, new Set())] : changes;
  }

  /** Undoes the last step. Returns the titles of to-dos that someone has changed since, which stay as they are. */
  undo(): Skipped {
    const step = this.last;
    if (step === undefined) return { changed: [], gone: [] };
    const { kind } = step;
    this.#done = this.#done.slice(0, -1);
    if (isDeletion(kind)) this.#outbox.withdraw(step.changes);
    const { targets, ...skipped } = this.#select(
      step,
      (todo, target) => isDeletion(kind) || isSameTodo(todo, toWrite(kind, target).todo),
    );
    if (!isDeletion(kind) && targets.length > 0) this.#addToOutbox(INVERSES[kind], targets);
    if (targets.length > 0) this.#undone = [...this.#undone, { ...step, targets }];
    return skipped;
  }

  /** Does what was undone last again. Returns undefined if there is nothing. */
  redo(): (Skipped & { readonly step: Step | undefined }) | undefined {
    const { undone } = this;
    if (undone === undefined) return undefined;
    this.#undone = this.#undone.slice(0, -1);
    const { kind, restoreFocus } = undone;
    const { targets, ...skipped } =
      kind === "created"
        ? { targets: undone.targets.map((target) => this.#renew(target)), changed: [], gone: [] }
        : this.#select(
            undone,
            (todo, target) => kind === "deleted" || isSameTodo(todo, { ...target, done: kind !== "done" }),
          );
    const step = targets.length > 0 ? this.#add(kind, targets, restoreFocus) : undefined;
    return { ...skipped, step };
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

  /** Returns the targets that may be changed, and the titles of the others. */
  #select({ targets }: Step, mayChange: (todo: Todo, target: Target) => boolean) {
    const { todos } = this.#state;
    const selected: Target[] = [];
    const changed: string[] = [];
    const gone: string[] = [];
    for (const before of targets) {
      const target = { ...before, id: this.resolve(before.id) };
      const todo = findTodo(todos, target.id);
      if (todo?.title !== target.title) gone.push(target.title);
      else if (mayChange(todo, target)) selected.push(target);
      else changed.push(target.title);
    }
    return { targets: selected, changed, gone };
  }

  /** Returns the to-dos that the service has as a change leaves them, so far as this window knows. */
  #findConfirmed(kind: ChangeKind, targets: readonly Target[]): ReadonlySet<TodoId> {
    const isConfirmed = (target: Target): boolean =>
      isSameTodo(this.#state.findConfirmed(target.id), toWrite(kind, target).todo);
    return new Set(targets.filter(isConfirmed).map(({ id }) => id));
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
