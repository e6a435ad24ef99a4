import type { Todo, TodoId } from "../../src/sdk/client.ts";
import { findTodo } from "../../src/sdk/json.ts";
import { isNewId, Overlay } from "../../src/sdk/overlay.ts";
import { type Change, type Target, toWrite } from "./change.ts";
import type { Answer, Outbox } from "./outbox.ts";

/** The list as it was when this browser was last connected. */
export interface LastList {
  /** The newest to-dos, in ascending order of id. */
  readonly todos: Todo[];
  /** The position of the list in the event stream. */
  readonly position: string;
  /** The number of all to-dos. */
  readonly total: number;
  readonly readAt: Date;
}

/** What the state needs of the outbox. */
type Changes = Pick<Outbox, "changes" | "created" | "onAnswers" | "addEventListener">;

/** The list of the service, with the effects of the user's changes on top. */
export class State {
  readonly #outbox: Changes;
  readonly overlay = new Overlay();
  #confirmed: readonly Todo[] = [];
  /** All to-dos with the effects of the user's changes, until something changes. */
  #shown: readonly Todo[] | undefined;
  /** The position of the list in the event stream, or undefined until the list has loaded. */
  position: string | undefined;
  /** The list follows the events of the service, so its position is current. */
  isLive = false;
  /** When it last was, in milliseconds of `performance.now()`. */
  liveUntil = Number.NEGATIVE_INFINITY;
  /** The last list that the browser kept, while it is shown because the service has not answered yet. */
  lastList: LastList | undefined;

  constructor(outbox: Changes) {
    this.#outbox = outbox;
    outbox.onAnswers = (answers) => this.#confirm(answers);
    outbox.addEventListener("change", () => {
      this.#shown = undefined;
    });
  }

  /** All to-dos as the service reported them, in ascending order of id. */
  get confirmed(): readonly Todo[] {
    return this.#confirmed;
  }

  set confirmed(todos) {
    this.#confirmed = todos;
    this.#shown = undefined;
  }

  /** Whether the page has a list to show: the service's, or the last one that the browser kept. */
  get isLoaded(): boolean {
    return this.position !== undefined || this.lastList !== undefined;
  }

  /** The to-dos that the service has created, by the ids under which they were shown before. */
  get created(): ReadonlyMap<TodoId, Todo> {
    return this.#outbox.created;
  }

  /** Whether a new list is necessary, because the service confirmed a change in an epoch that the list has left. */
  get needsList(): boolean {
    return this.position !== undefined && this.overlay.needsList;
  }

  /** All to-dos with the effects of the user's changes. */
  get todos(): readonly Todo[] {
    this.#shown ??= this.#show();
    return this.#shown;
  }

  /** Returns a to-do as the service has it, so far as this window knows. If there is none, it has no title. */
  findConfirmed(id: TodoId): Todo {
    return this.overlay.find(this.#confirmed, id, []);
  }

  setList(todos: readonly Todo[], position: string): void {
    this.confirmed = todos;
    this.position = position;
    this.overlay.advance(position);
  }

  /** The service has answered changes. Their effects stay until the list has them. */
  #confirm(answers: readonly Answer[]): void {
    for (const { id, ...confirmation } of answers) this.overlay.confirm(id, confirmation);
    this.#shown = undefined;
  }

  /** Shows the effects of the changes of the outbox, in their order. */
  #show(): readonly Todo[] {
    const { changes, created } = this.#outbox;
    this.overlay.pending = changes
      .filter(({ kind }) => kind !== "cleared")
      .flatMap(({ kind, targets }) => targets.map((target) => toWrite(kind, target)))
      // Another window has the answer already, and removes the change next.
      .filter(({ todo }) => !created.has(todo.id));
    // Each is hidden while it is done, because someone may reopen it before it is sent.
    const clearing = changes.filter(({ kind }) => kind === "cleared");
    const cleared = new Set(clearing.flatMap(({ targets }) => targets.map(({ id }) => id)));
    return this.overlay.apply(this.#confirmed).filter(({ id, done }) => !done || !cleared.has(id));
  }

  /** The list now, for new to-dos. */
  get since() {
    return { after: this.todos.findLast(({ id }) => !isNewId(id))?.id ?? "", position: this.position };
  }

  /** Returns the targets of a clearing that are open, because someone has reopened them since. They are not deleted. */
  findReopened({ targets }: Change): readonly Target[] {
    return targets.filter(({ id, title }) => {
      const todo = findTodo(this.todos, id);
      return todo?.title === title && !todo.done;
    });
  }
}
