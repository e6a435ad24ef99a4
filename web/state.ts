import type { Todo, TodoId } from "../src/sdk/client.ts";
import type { LastList } from "./offline.ts";
import type { Outbox } from "./outbox.ts";

/** The to-dos that match the search, in ascending order of id. */
export interface View {
  readonly open: readonly Todo[];
  readonly done: readonly Todo[];
  /** The numbers of all to-dos and of all open ones. */
  readonly total: number;
  readonly totalOpen: number;
}

/** The list of the service, with the changes of the outbox on top. */
export class State {
  readonly #outbox: Outbox;
  /** All to-dos as the service reported them, in ascending order of id. */
  confirmed: readonly Todo[] = [];
  /** The position of the list in the event stream, or undefined until the list has loaded. */
  position: string | undefined;
  /** The last list that the browser kept, while it is shown because the service has not answered yet. */
  lastList: LastList | undefined;

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
  }

  /** Whether the page has a list to show: the service's, or the last one that the browser kept. */
  get isLoaded(): boolean {
    return this.position !== undefined || this.lastList !== undefined;
  }

  /** The to-dos that the service has created, by the ids under which they were shown before. */
  get created(): ReadonlyMap<TodoId, Todo> {
    return this.#outbox.created;
  }

  /** Returns the to-dos that match a search, and counts of all. Includes the user's unsent changes. */
  view(matches: (todo: Todo) => boolean): View {
    const shown = this.#outbox.apply(this.confirmed);
    const open: Todo[] = [];
    const done: Todo[] = [];
    let totalOpen = 0;
    for (const todo of shown) {
      if (!todo.done) totalOpen++;
      if (matches(todo)) (todo.done ? done : open).push(todo);
    }
    return { open, done, total: shown.length, totalOpen };
  }
}
