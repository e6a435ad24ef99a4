import type { Todo } from "../src/sdk/client.ts";
import type { Outbox } from "./outbox.ts";

export type Filter = "all" | "open" | "done";

export interface View {
  /** The to-dos that match the filter and the search. */
  readonly todos: readonly Todo[];
  /** The numbers of open and done to-dos that match the search. */
  readonly open: number;
  readonly done: number;
  /** The numbers of all to-dos and of all open ones. */
  readonly total: number;
  readonly totalOpen: number;
}

/** The list of the service, with the changes of the outbox on top. */
export class State {
  readonly #outbox: Outbox;
  /** In ascending order of id. */
  #confirmed: readonly Todo[] = [];
  /** Absent until it is needed. */
  #shown: readonly Todo[] | undefined;
  /** The position of the list in the event stream, or undefined until the list has loaded. */
  position: string | undefined;

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
    outbox.onChange(() => {
      this.#shown = undefined;
    });
  }

  /** All to-dos as the service reported them, in ascending order of id. */
  get confirmed(): readonly Todo[] {
    return this.#confirmed;
  }

  set confirmed(todos: readonly Todo[]) {
    this.#confirmed = todos;
    this.#shown = undefined;
  }

  /** Returns the to-dos that match the filter and the search, with counts. Includes the user's unsent changes. */
  view(filter: Filter, matches: (todo: Todo) => boolean = () => true): View {
    this.#shown ??= this.#outbox.apply(this.#confirmed);
    const todos: Todo[] = [];
    let open = 0;
    let done = 0;
    let totalOpen = 0;
    for (const todo of this.#shown) {
      if (!todo.done) totalOpen++;
      if (!matches(todo)) continue;
      if (todo.done) done++;
      else open++;
      if (filter === "all" || todo.done === (filter === "done")) todos.push(todo);
    }
    return { todos, open, done, total: this.#shown.length, totalOpen };
  }
}
