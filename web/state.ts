import { type Todo, type TodoApi, TodoApiError, type TodoEvent, type TodoId } from "../src/sdk.ts";

/** What is asked for of a to-do. */
export type Wish = "done" | "open" | "deleted";

export type Show = "all" | "open" | "done";

interface Request {
  wish: Wish;
  /** Whether something was heard of the to-do since the request was sent: that may be newer than the answer. */
  isOutdated: boolean;
  /** What waits for news of it. */
  onNews: () => void;
}

/** So many come first, to be seen at once; the rest comes in one piece. */
const FIRST = 500;
/** The event of a change comes so much later than its answer at most, or not at all. */
const EVENT_WITHIN_MS = 1000;

/**
 * What the page knows of the to-dos: what the service said, and above it what has been asked for and not answered
 * yet. Events are the truth: an answer only counts until they say more.
 */
export class State {
  readonly #api: TodoApi;
  readonly #onChange: () => void;
  /** By ascending id. */
  #todos: Todo[] = [];
  readonly #requests = new Map<TodoId, Request>();
  #position: string | undefined;
  /** The greatest that an event or a list has told of. */
  #lastId: TodoId = 0n;

  constructor(api: TodoApi, onChange: () => void) {
    this.#api = api;
    this.#onChange = onChange;
  }

  /** Where to follow from; undefined until the list has been loaded. */
  get position(): string | undefined {
    return this.#position;
  }

  /** Gets the list anew. What is kept of it is right when the events since its first page have been applied. */
  async load(signal: AbortSignal): Promise<void> {
    const first = await this.#api.list({ limit: FIRST }, { signal });
    const last = first.todos.at(-1);
    if (first.next === undefined || last === undefined) return this.#take(first.todos, first.position);
    if (this.#position === undefined) {
      this.#todos = [...first.todos];
      this.#onChange();
    }
    const rest = await this.#api.list({ after: last.id }, { signal });
    this.#take(first.todos.concat(rest.todos), first.position);
  }

  #take(todos: readonly Todo[], position: string): void {
    this.#todos = [...todos];
    this.#position = position;
    this.#lastId = todos.at(-1)?.id ?? 0n;
    for (const request of this.#requests.values()) request.isOutdated = true;
    this.#onChange();
  }

  /** Takes in a change that the service tells. */
  apply(event: Extract<TodoEvent, { type: "created" | "updated" | "deleted" }>): void {
    this.#position = event.position;
    const id = event.type === "deleted" ? event.id : event.todo.id;
    const request = this.#requests.get(id);
    if (request !== undefined) {
      request.isOutdated = true;
      request.onNews();
    }
    if (id > this.#lastId) this.#lastId = id;
    if (event.type === "deleted") this.#remove(id);
    // One that is not here was deleted by this page: that event is to come.
    else if (event.type === "created" || this.#find(id) !== undefined) this.#put(event.todo);
    this.#onChange();
  }

  /** Makes a to-do, one for each key; it is shown when the service has it. */
  async create(title: string, idempotencyKey: string): Promise<Todo> {
    const todo = await this.#api.create(title, { idempotencyKey });
    // An event that was faster than the answer knows more: it may have been deleted since.
    if (todo.id > this.#lastId) this.#put(todo);
    this.#onChange();
    return todo;
  }

  /**
   * Shows a wish as fulfilled, and asks the service for it; rejects, with all as it was, when that refuses. One
   * request at a time for each to-do: of what is wished meanwhile the last counts.
   */
  async ask({ id }: Todo, wish: Wish): Promise<void> {
    const running = this.#requests.get(id);
    if (running !== undefined) {
      running.wish = wish;
      this.#onChange();
      return;
    }
    const request: Request = { wish, isOutdated: false, onNews: () => {} };
    this.#requests.set(id, request);
    this.#onChange();
    try {
      let sent: Wish;
      do {
        sent = request.wish;
        request.isOutdated = false;
        await this.#send(id, sent, request);
      } while (request.wish !== sent);
    } finally {
      this.#requests.delete(id);
      this.#onChange();
    }
  }

  async #send(id: TodoId, wish: Wish, request: Request): Promise<void> {
    try {
      if (wish === "deleted") await this.#api.delete(id);
      else {
        const todo = await this.#api.setDone(id, wish === "done");
        if (!request.isOutdated) this.#put(todo);
        else await this.#hearOf(todo, request);
        return;
      }
    } catch (error) {
      const isGone = error instanceof TodoApiError && error.code === "todo_not_found";
      if (isGone) this.#remove(id);
      if (!isGone || wish !== "deleted") throw error;
    }
    this.#remove(id);
  }

  /**
   * Waits, when what was heard since a request contradicts its answer, for the event that belongs to the answer: what
   * was heard may be older. If it does not come, what was heard is newer.
   */
  async #hearOf({ id, done }: Todo, request: Request): Promise<void> {
    const end = Date.now() + EVENT_WITHIN_MS;
    while (this.#find(id)?.done === !done && Date.now() < end) {
      await new Promise<void>((resolve) => {
        request.onNews = resolve;
        setTimeout(resolve, end - Date.now());
      });
    }
  }

  /** The to-dos to be shown, wishes included, and how many there are of each kind. */
  view(show: Show): { readonly todos: readonly Todo[]; readonly open: number; readonly done: number } {
    const todos: Todo[] = [];
    let open = 0;
    let done = 0;
    for (const said of this.#todos) {
      const todo = this.#requests.size === 0 ? said : this.#wished(said);
      if (todo === undefined) continue;
      if (todo.done) done++;
      else open++;
      if (show === "all" || todo.done === (show === "done")) todos.push(todo);
    }
    return { todos, open, done };
  }

  #wished(todo: Todo): Todo | undefined {
    const wish = this.#requests.get(todo.id)?.wish;
    if (wish === "deleted") return undefined;
    return wish === undefined ? todo : { ...todo, done: wish === "done" };
  }

  #find(id: TodoId): Todo | undefined {
    const todo = this.#todos[indexOf(this.#todos, id)];
    return todo?.id === id ? todo : undefined;
  }

  #put(todo: Todo): void {
    const at = indexOf(this.#todos, todo.id);
    this.#todos.splice(at, this.#todos[at]?.id === todo.id ? 1 : 0, todo);
  }

  #remove(id: TodoId): void {
    if (this.#find(id) !== undefined) this.#todos.splice(indexOf(this.#todos, id), 1);
  }
}

/** Where a to-do is, or would be, among to-dos by ascending id. */
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
