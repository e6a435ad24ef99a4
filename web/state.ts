import {
  compareIds,
  type Todo,
  type TodoApiCore,
  TodoApiError,
  type TodoEvent,
  type TodoId,
} from "../src/sdk/client.ts";

/** A change that the user requested. */
export type PendingChange = "done" | "open" | "deleted";

export type Filter = "all" | "open" | "done";

/** One change to several to-dos. The list shows it, and no request was sent yet, so that it can be undone. */
export interface HeldChange {
  readonly change: PendingChange;
  /** To-dos that leave this state before the change is sent are no longer affected. Without it, all are affected. */
  readonly onlyWhile?: Exclude<Filter, "all">;
  /** The to-dos that wait, as they were when the user requested the change. */
  readonly todos: Map<TodoId, Todo>;
}

/** What became of a held change. */
export interface SendResult {
  readonly succeeded: number;
  readonly failures: readonly { readonly todo: Todo; readonly error: unknown }[];
  /** The number of to-dos that a stop restored. */
  readonly unsent: number;
}

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

interface PendingRequest {
  change: PendingChange;
  /** True if an event or a list arrived since the request was sent: it may be newer than the response. */
  isStale: boolean;
  /** Runs after each event about the to-do. */
  onEvent: () => void;
}

/** Size of the first page, which appears immediately. The second page contains the rest. */
const FIRST_PAGE_SIZE = 500;
/** How long to wait for the event that belongs to a response. */
const EVENT_TIMEOUT_MS = 1000;
/** The maximum number of concurrent requests of one held change. */
const MAX_CONCURRENT = 4;

/**
 * The to-dos as the service reported them, combined with the changes that it has not yet confirmed. Events are
 * authoritative: a response counts only until a newer event arrives.
 */
export class State {
  readonly #api: TodoApiCore;
  readonly #onChange: () => void;
  /** In ascending order of id. */
  #todos: Todo[] = [];
  readonly #requests = new Map<TodoId, PendingRequest>();
  /** From the last to the first. If several contain a to-do, the list shows the last one. */
  #held: readonly HeldChange[] = [];
  #position: string | undefined;
  /** The greatest id in any event or list so far. */
  #lastId: TodoId = "0";

  constructor(api: TodoApiCore, onChange: () => void) {
    this.#api = api;
    this.#onChange = onChange;
  }

  /** Position in the event stream from which to continue, or undefined until the list has loaded. */
  get position(): string | undefined {
    return this.#position;
  }

  /** Identifies the history that ids and positions belong to. A store that starts empty has a new one. */
  get epoch(): string | undefined {
    return this.#position === undefined ? undefined : parseEpoch(this.#position);
  }

  /** All to-dos as the service reported them, in ascending order of id. */
  get confirmed(): readonly Todo[] {
    return this.#todos;
  }

  /** Shows a list from an earlier visit until the list has loaded. */
  showUntilLoaded(todos: readonly Todo[]): void {
    if (this.#position !== undefined) return;
    this.#todos = [...todos];
    this.#onChange();
  }

  /**
   * Loads the list. Its pages may differ in age; it is correct after the events since the first page were applied.
   * Returns how many to-dos are missing because the service has another list than before.
   * @param api sends the requests, for example without retries
   */
  async load(signal: AbortSignal, api = this.#api): Promise<number> {
    const first = await api.list({ limit: FIRST_PAGE_SIZE }, { signal });
    const last = first.todos.at(-1);
    if (first.next === undefined || last === undefined) return this.#replaceAll(first.todos, first.position);
    if (this.#position === undefined) {
      this.#todos = [...first.todos];
      this.#onChange();
    }
    const rest = await api.list({ after: last.id }, { signal });
    return this.#replaceAll(first.todos.concat(rest.todos), first.position);
  }

  #replaceAll(todos: readonly Todo[], position: string): number {
    const isOtherList = this.epoch !== undefined && this.epoch !== parseEpoch(position);
    let missing = 0;
    if (isOtherList) {
      // The same id may be another to-do now.
      for (const held of this.#held) this.restore(held);
      const titles = new Map(todos.map(({ id, title }) => [id, title]));
      missing = this.#todos.filter(({ id, title }) => titles.get(id) !== title).length;
    }
    this.#todos = [...todos];
    this.#position = position;
    this.#lastId = todos.at(-1)?.id ?? "0";
    for (const request of this.#requests.values()) request.isStale = true;
    this.#onChange();
    return missing;
  }

  /** Applies an event from the service. */
  apply(event: Extract<TodoEvent, { type: "created" | "updated" | "deleted" }>): void {
    this.#position = event.position;
    const id = event.type === "deleted" ? event.id : event.todo.id;
    const request = this.#requests.get(id);
    if (request !== undefined) {
      request.isStale = true;
      request.onEvent();
    }
    if (compareIds(id, this.#lastId) > 0) this.#lastId = id;
    if (event.type === "updated")
      for (const { onlyWhile, todos } of this.#held)
        if (onlyWhile !== undefined && event.todo.done !== (onlyWhile === "done")) todos.delete(id);
    if (event.type === "deleted") this.#remove(id);
    // An update for an unknown to-do: this page deleted it, and the event of that deletion follows.
    else if (event.type === "created" || this.#find(id) !== undefined) this.#put(event.todo);
    this.#onChange();
  }

  /** Creates a to-do, at most one for each idempotency key. Shows it when the service has confirmed it. */
  async create(title: string, idempotencyKey: string): Promise<Todo> {
    const todo = await this.#api.create(title, { idempotencyKey });
    // If the event came first, ignore the response: the to-do may have been deleted since.
    if (compareIds(todo.id, this.#lastId) > 0) this.#put(todo);
    this.#onChange();
    return todo;
  }

  /**
   * Shows a change immediately and sends it to the service. Rejects and shows the previous state if the service rejects
   * it. Sends one request at a time for each to-do; of the changes requested meanwhile, only the last is sent.
   * @param held the held change that contains it; later ones stay
   */
  async requestChange({ id }: Todo, change: PendingChange, held?: HeldChange): Promise<void> {
    const running = this.#requests.get(id);
    const replaced = held === undefined ? this.#held : this.#held.slice(this.#held.indexOf(held));
    const wasHeld = replaced.map(({ todos }) => todos.delete(id)).includes(true);
    const isNeeded = running !== undefined || (this.has(id) && !this.#isConfirmed(id, change));
    if (wasHeld && !isNeeded) return this.#onChange();
    if (running !== undefined) {
      running.change = change;
      this.#onChange();
      return;
    }
    const request: PendingRequest = { change, isStale: false, onEvent: () => {} };
    this.#requests.set(id, request);
    this.#onChange();
    try {
      let sent: PendingChange;
      do {
        sent = request.change;
        request.isStale = false;
        await this.#send(id, sent, request);
      } while (request.change !== sent);
    } finally {
      this.#requests.delete(id);
      this.#onChange();
    }
  }

  async #send(id: TodoId, change: PendingChange, request: PendingRequest): Promise<void> {
    try {
      if (change === "deleted") await this.#api.delete(id);
      else {
        const todo = await this.#api.setDone(id, change === "done");
        if (!request.isStale) this.#put(todo);
        else await this.#reconcile(todo, request);
        return;
      }
    } catch (error) {
      // The service applied the change, as its event says, but its response was lost.
      if (hasNoResponse(error) && request.isStale && this.#isConfirmed(id, change)) return;
      const isGone = error instanceof TodoApiError && error.code === "todo_not_found";
      if (isGone) this.#remove(id);
      if (!isGone || request.change !== "deleted") throw error;
    }
    this.#remove(id);
  }

  /**
   * Waits for the event that belongs to a response, if an event since the request contradicts the response. That event may
   * be older than the response. If no other event comes in time, it is newer.
   */
  async #reconcile({ id, done }: Todo, request: PendingRequest): Promise<void> {
    const deadline = Date.now() + EVENT_TIMEOUT_MS;
    while (this.#find(id)?.done === !done && Date.now() < deadline) {
      await new Promise<void>((resolve) => {
        request.onEvent = resolve;
        setTimeout(resolve, deadline - Date.now());
      });
    }
  }

  /** Shows a change to several to-dos without sending it. */
  hold(todos: readonly Todo[], change: PendingChange, onlyWhile?: Exclude<Filter, "all">): HeldChange {
    const held = {
      change,
      todos: new Map(todos.map((todo) => [todo.id, todo])),
      ...(onlyWhile !== undefined && { onlyWhile }),
    };
    this.#held = [held, ...this.#held.filter((earlier) => earlier.todos.size > 0)];
    this.#onChange();
    return held;
  }

  /** Shows the to-dos of a held change as they are. Returns them, and those that were deleted elsewhere meanwhile. */
  restore(held: HeldChange): { readonly restored: readonly Todo[]; readonly deleted: readonly Todo[] } {
    const restored: Todo[] = [];
    const deleted: Todo[] = [];
    for (const [id, todo] of held.todos) (this.has(id) ? restored : deleted).push(todo);
    held.todos.clear();
    this.#onChange();
    return { restored, deleted };
  }

  /**
   * Sends a held change, with at most four requests at a time. Stops when the signal aborts or when a request has no
   * response; the remaining to-dos are then restored.
   */
  async send(
    held: HeldChange,
    { signal, onProgress }: { readonly signal?: AbortSignal; readonly onProgress?: () => void } = {},
  ): Promise<SendResult> {
    const failures: { todo: Todo; error: unknown }[] = [];
    let succeeded = 0;
    let unreachable: unknown;
    const work = async (): Promise<void> => {
      while (!signal?.aborted && unreachable === undefined) {
        const [todo] = held.todos.values();
        if (todo === undefined) return;
        try {
          await this.requestChange(todo, held.change, held);
          succeeded++;
        } catch (error) {
          failures.push({ todo, error });
          if (hasNoResponse(error)) unreachable = error;
        }
        onProgress?.();
      }
    };
    await Promise.all(Array.from({ length: MAX_CONCURRENT }, work));
    const { restored } = this.restore(held);
    if (unreachable === undefined) return { succeeded, failures, unsent: restored.length };
    const unsent = restored.map((todo) => ({ todo, error: unreachable }));
    return { succeeded, failures: [...failures, ...unsent], unsent: 0 };
  }

  /** Sends all that remains of a held change at once, because the page is about to close. */
  sendBeforeClosing(held: HeldChange): Promise<SendResult> {
    const todos = [...held.todos.values()];
    const failures: { todo: Todo; error: unknown }[] = [];
    const send = async (todo: Todo): Promise<void> => {
      const isRunning = this.#requests.has(todo.id);
      // A closing page does not see the response after which it would send a queued change. If the page stays after all,
      // requestChange sends the change again and reports its failure.
      if (isRunning && held.change === "deleted") this.#api.delete(todo.id).catch(() => {});
      await this.requestChange(todo, held.change).catch((error) => failures.push({ todo, error }));
    };
    return Promise.all(todos.map(send)).then(() => ({
      succeeded: todos.length - failures.length,
      failures,
      unsent: 0,
    }));
  }

  #heldChange(id: TodoId): PendingChange | undefined {
    return this.#held.find(({ todos }) => todos.has(id))?.change;
  }

  /** Returns whether the service reports a to-do as a change leaves it. */
  #isConfirmed(id: TodoId, change: PendingChange): boolean {
    const todo = this.#find(id);
    return change === "deleted" ? todo === undefined : todo?.done === (change === "done");
  }

  /** Returns whether the list shows a to-do as a change leaves it, and no request for it is pending. */
  isSettled(id: TodoId, change: PendingChange): boolean {
    return !this.#requests.has(id) && this.#heldChange(id) === undefined && this.#isConfirmed(id, change);
  }

  /** Returns whether the service reports a to-do. */
  has(id: TodoId): boolean {
    return this.#find(id) !== undefined;
  }

  /** Returns the to-dos that match the filter and the search, with counts. Includes pending changes. */
  view(filter: Filter, matches: (todo: Todo) => boolean = () => true): View {
    const todos: Todo[] = [];
    let open = 0;
    let done = 0;
    let total = 0;
    let totalOpen = 0;
    const isPlain = this.#requests.size === 0 && this.#held.every(({ todos }) => todos.size === 0);
    for (const confirmed of this.#todos) {
      const todo = isPlain ? confirmed : this.#optimistic(confirmed);
      if (todo === undefined) continue;
      total++;
      if (!todo.done) totalOpen++;
      if (!matches(confirmed)) continue;
      if (todo.done) done++;
      else open++;
      if (filter === "all" || todo.done === (filter === "done")) todos.push(todo);
    }
    return { todos, open, done, total, totalOpen };
  }

  #optimistic(todo: Todo): Todo | undefined {
    const change = this.#heldChange(todo.id) ?? this.#requests.get(todo.id)?.change;
    if (change === "deleted") return undefined;
    const done = change === undefined ? todo.done : change === "done";
    return done === todo.done ? todo : { ...todo, done };
  }

  #find(id: TodoId): Todo | undefined {
    const todo = this.#todos[indexOf(this.#todos, id)];
    return todo?.id === id ? todo : undefined;
  }

  #put(todo: Todo): void {
    const index = indexOf(this.#todos, todo.id);
    this.#todos.splice(index, this.#todos[index]?.id === todo.id ? 1 : 0, todo);
  }

  #remove(id: TodoId): void {
    if (this.#find(id) !== undefined) this.#todos.splice(indexOf(this.#todos, id), 1);
  }
}

/** Returns whether a request had no response: the service may have applied it. */
export const hasNoResponse = (error: unknown): boolean =>
  error instanceof TodoApiError && (error.code === "network_error" || error.code === "timeout");

const parseEpoch = (position: string): string => position.slice(0, position.lastIndexOf("-"));

/**
 * Returns the index of a to-do, or the index at which to insert it. The to-dos are in ascending order of id if `direction`
 * is 1, and in descending order if it is -1.
 */
export function indexOf(todos: readonly Todo[], id: TodoId, direction: 1 | -1 = 1): number {
  let low = 0;
  let high = todos.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const todo = todos[middle];
    if (todo !== undefined && compareIds(todo.id, id) * direction < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
