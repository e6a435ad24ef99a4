import { type Todo, type TodoApi, TodoApiError, type TodoEvent, type TodoId } from "../src/sdk/client.ts";

/** A change that the user requested. */
export type PendingChange = "done" | "open" | "deleted";

export type Filter = "all" | "open" | "done";

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

/**
 * The to-dos as the service reported them, combined with the changes that it has not yet confirmed. Events are
 * authoritative: a response counts only until a newer event arrives.
 */
export class State {
  readonly #api: TodoApi;
  readonly #onChange: () => void;
  /** In ascending order of id. */
  #todos: Todo[] = [];
  readonly #requests = new Map<TodoId, PendingRequest>();
  #position: string | undefined;
  /** The greatest id in any event or list so far. */
  #lastId: TodoId = 0n;

  constructor(api: TodoApi, onChange: () => void) {
    this.#api = api;
    this.#onChange = onChange;
  }

  /** Position in the event stream from which to continue, or undefined until the list has loaded. */
  get position(): string | undefined {
    return this.#position;
  }

  /** Loads the list. Its pages may differ in age; it is correct after the events since the first page were applied. */
  async load(signal: AbortSignal): Promise<void> {
    const first = await this.#api.list({ limit: FIRST_PAGE_SIZE }, { signal });
    const last = first.todos.at(-1);
    if (first.next === undefined || last === undefined) return this.#replaceAll(first.todos, first.position);
    if (this.#position === undefined) {
      this.#todos = [...first.todos];
      this.#onChange();
    }
    const rest = await this.#api.list({ after: last.id }, { signal });
    this.#replaceAll(first.todos.concat(rest.todos), first.position);
  }

  #replaceAll(todos: readonly Todo[], position: string): void {
    this.#todos = [...todos];
    this.#position = position;
    this.#lastId = todos.at(-1)?.id ?? 0n;
    for (const request of this.#requests.values()) request.isStale = true;
    this.#onChange();
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
    if (id > this.#lastId) this.#lastId = id;
    if (event.type === "deleted") this.#remove(id);
    // An update for an unknown to-do: this page deleted it, and the event of that deletion follows.
    else if (event.type === "created" || this.#find(id) !== undefined) this.#put(event.todo);
    this.#onChange();
  }

  /** Creates a to-do, at most one for each idempotency key. Shows it when the service has confirmed it. */
  async create(title: string, idempotencyKey: string): Promise<Todo> {
    const todo = await this.#api.create(title, { idempotencyKey });
    // If the event came first, ignore the response: the to-do may have been deleted since.
    if (todo.id > this.#lastId) this.#put(todo);
    this.#onChange();
    return todo;
  }

  /**
   * Shows a change immediately and sends it to the service. Rejects and shows the previous state if the service rejects
   * it. Sends one request at a time for each to-do; of the changes requested meanwhile, only the last is sent.
   */
  async requestChange({ id }: Todo, change: PendingChange): Promise<void> {
    const running = this.#requests.get(id);
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
      const isGone = error instanceof TodoApiError && error.code === "todo_not_found";
      if (isGone) this.#remove(id);
      if (!isGone || change !== "deleted") throw error;
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

  /** Returns the to-dos that match the filter, and the number of open and done ones. Includes pending changes. */
  view(filter: Filter): { readonly todos: readonly Todo[]; readonly open: number; readonly done: number } {
    const todos: Todo[] = [];
    let open = 0;
    let done = 0;
    for (const confirmed of this.#todos) {
      const todo = this.#requests.size === 0 ? confirmed : this.#optimistic(confirmed);
      if (todo === undefined) continue;
      if (todo.done) done++;
      else open++;
      if (filter === "all" || todo.done === (filter === "done")) todos.push(todo);
    }
    return { todos, open, done };
  }

  #optimistic(todo: Todo): Todo | undefined {
    const change = this.#requests.get(todo.id)?.change;
    if (change === "deleted") return undefined;
    return change === undefined ? todo : { ...todo, done: change === "done" };
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

/** Returns the index of a to-do among to-dos in ascending order of id, or the index at which to insert it. */
export function indexOf(todos: readonly Todo[], id: TodoId): number {
  let low = 0;
  let high = todos.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const todo = todos[middle];
    if (todo !== undefined && todo.id < id) low = middle + 1;
    else high = middle;
  }
  return low;
}
