import { abortOnReturn, linkAbort } from "./abort.ts";
import { compareIds } from "./json.ts";
import { delay, isTransient, retryDelay } from "./retry.ts";
import {
  type CallOptions,
  type LiveList,
  type Todo,
  TodoApiError,
  type TodoEvent,
  type TodoId,
  type TodoList,
} from "./types.ts";

/** How long a state waits for further changes: one frame, because the copy of a long list takes about a millisecond. */
const FRAME_MS = 16;

/** The calls that a live list is made from. */
interface Source {
  list(query: object, options: CallOptions): Promise<TodoList>;
  events(options: CallOptions & { readonly since: string }): AsyncIterable<TodoEvent>;
}

/** Yields each state of the list. A slow reader gets only the latest one. */
export function followList(source: Source, options: CallOptions): AsyncGenerator<LiveList, void, undefined> {
  return abortOnReturn(options.signal, async function* (signal) {
    let isChanged = false;
    let wake = (): void => {};
    const list = new FollowedList(() => {
      isChanged = true;
      wake();
    });
    let end: Promise<void> | undefined;
    const running = list.synchronize(source, options, signal).finally(() => {
      end = running;
      wake();
    });
    // `await end` below throws the error.
    running.catch(() => {});
    while (end === undefined) {
      if (isChanged) {
        isChanged = false;
        yield list.state;
      } else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
    await end;
  });
}

/** Passes each state of the list to a function. Returns a function that ends this. */
export function watchList(
  source: Source,
  onState: (state: LiveList) => void,
  options: CallOptions,
): () => void {
  const { signal, abort } = linkAbort(options.signal);
  const list = new FollowedList(() => onState(list.state));
  list.synchronize(source, options, signal).catch((error) => {
    if (signal.aborted) return;
    // A pending timer must not pass another state after the last one.
    abort();
    onState({ ...list.state, status: "failed", error });
  });
  return abort;
}

/** A list that is kept current. */
class FollowedList {
  readonly #onChange: () => void;
  /** By ascending id. The list and the events belong to the same history, so each change applies. */
  #todos: Todo[] = [];
  /** The array that users got last. It is a copy, because they may change it. */
  #copy: Todo[] | undefined;
  #state: Omit<LiveList, "todos"> = { status: "connecting" };
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param onChange is called once for changes that arrive together */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  get state(): LiveList {
    this.#copy ??= this.#todos.slice();
    return { ...this.#state, todos: this.#copy };
  }

  /** Keeps the list current until the signal aborts. Rejects if the service rejects a request. */
  async synchronize(source: Source, options: CallOptions, signal: AbortSignal): Promise<void> {
    const onChange = (): void => {
      this.#timer = undefined;
      if (!signal.aborted) this.#onChange();
    };
    for (let attempt = 0; !signal.aborted; ) {
      let error: TodoApiError | undefined;
      try {
        const { todos, position } = await source.list({}, { ...options, signal, retries: 0 });
        attempt = 0;
        this.#todos = todos;
        this.#copy = undefined;
        this.#state = { ...this.#state, position };
        this.#timer ??= setTimeout(onChange, FRAME_MS);
        for await (const event of source.events({ ...options, signal, since: position })) {
          if (event.type === "resync") break;
          this.#apply(event);
          this.#timer ??= setTimeout(onChange, FRAME_MS);
        }
      } catch (caught) {
        if (signal.aborted) return;
        if (!isTransient(caught)) throw caught;
        error = caught;
        this.#state = { ...this.#state, status: "disconnected", error };
        this.#timer ??= setTimeout(onChange, FRAME_MS);
      }
      await delay(retryDelay(attempt++, error), signal);
    }
  }

  #apply(event: Exclude<TodoEvent, { type: "resync" }>): void {
    if (event.type === "disconnected") {
      const closed = new TodoApiError("network_error", "the service closed the event stream");
      this.#state = { ...this.#state, status: "disconnected", error: event.error ?? closed };
      return;
    }
    const { position } = event;
    this.#state = { position, status: "connected" };
    if (event.type === "connected") return;
    this.#copy = undefined;
    if (event.type === "deleted") this.#replace(event.id);
    else this.#replace(event.todo.id, event.todo);
  }

  /** Puts a to-do in the place of its id, or nothing if it is deleted. */
  #replace(id: TodoId, ...todo: Todo[]): void {
    let low = 0;
    let high = this.#todos.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (compareIds(this.#todos[middle]?.id ?? id, id) < 0) low = middle + 1;
      else high = middle;
    }
    this.#todos.splice(low, this.#todos[low]?.id === id ? 1 : 0, ...todo);
  }
}
