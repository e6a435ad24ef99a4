import { abortOnReturn, linkAbort } from "./abort.ts";
import { indexOf } from "./json.ts";
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
    const latest: LiveList[] = [];
    let wake = (): void => {};
    signal.addEventListener("abort", () => wake());
    const onState = (state: LiveList): void => {
      latest[0] = state;
      wake();
    };
    watchList(source, onState, { ...options, signal });
    while (!signal.aborted) {
      const state = latest.pop();
      if (state?.status === "failed") throw state.error;
      if (state !== undefined) yield state;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  });
}

/** Passes each state of the list to a function. Returns a function that ends this. */
export function watchList(
  source: Source,
  onState: (state: LiveList) => void,
  options: CallOptions,
): () => void {
  const { signal, abort } = linkAbort(options.signal);
  /** By ascending id. The list and the events belong to the same history, so each change applies. */
  let todos: Todo[] = [];
  /** The array that the user got last. It is a copy, because the user may change it. */
  let copy: Todo[] | undefined;
  let state: Omit<LiveList, "todos"> = { status: "connecting" };
  let isWaiting = false;
  synchronize().catch((error) => {
    if (signal.aborted) return;
    // A pending timer must not pass another state after the last one.
    abort();
    onState({ ...state, todos: copy ?? todos.slice(), status: "failed", error });
  });
  return abort;

  /** Keeps the list current until the signal aborts. Rejects if the service rejects a request. */
  async function synchronize(): Promise<void> {
    for (let attempt = 0; !signal.aborted; ) {
      let error: TodoApiError | undefined;
      try {
        const list = await source.list({}, { ...options, signal, retries: 0 });
        attempt = 0;
        todos = list.todos;
        copy = undefined;
        setState({ ...state, position: list.position });
        for await (const event of source.events({ ...options, signal, since: list.position })) {
          if (event.type === "resync") break;
          apply(event);
        }
      } catch (caught) {
        if (signal.aborted) return;
        if (!isTransient(caught)) throw caught;
        error = caught;
        setState({ ...state, status: "disconnected", error });
      }
      await delay(retryDelay(attempt++, error), signal);
    }
  }

  function apply(event: Exclude<TodoEvent, { type: "resync" }>): void {
    if (event.type === "disconnected") {
      const closed = new TodoApiError("network_error", "the service closed the event stream");
      setState({ ...state, status: "disconnected", error: event.error ?? closed });
      return;
    }
    if (event.type === "deleted") replace(event.id);
    else if (event.type !== "connected") replace(event.todo.id, event.todo);
    setState({ position: event.position, status: "connected" });
  }

  /** Puts a to-do in the place of its id, or nothing if it is deleted. */
  function replace(id: TodoId, ...todo: Todo[]): void {
    copy = undefined;
    const index = indexOf(todos, id);
    todos.splice(index, todos[index]?.id === id ? 1 : 0, ...todo);
  }

  /** Passes the state to the user after one frame, with the changes until then. */
  function setState(next: typeof state): void {
    state = next;
    if (isWaiting) return;
    isWaiting = true;
    setTimeout(() => {
      isWaiting = false;
      copy ??= todos.slice();
      if (!signal.aborted) onState({ ...state, todos: copy });
    }, FRAME_MS);
  }
}
