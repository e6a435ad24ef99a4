import { abortOnReturn, linkAbort } from "./abort.ts";
import { findTodo, indexOf } from "./json.ts";
import { type Effect, isNewId, newId, Overlay } from "./overlay.ts";
import { delay, isTransient, retryDelay } from "./retry.ts";
import {
  type CallOptions,
  type FollowedList,
  type FollowOptions,
  type LiveList,
  type Todo,
  TodoApiError,
  type TodoEvent,
  type TodoId,
  type TodoList,
} from "./types.ts";
import type { Answer, Writes } from "./writes.ts";

/** How long a state waits for further changes: one frame, because the copy of a long list takes about a millisecond. */
const FRAME_MS = 16;

/** The calls that a followed list is made from. */
export interface Source {
  readonly list: (query: object, options: CallOptions) => Promise<TodoList>;
  readonly events: (options: CallOptions & { readonly since: string }) => AsyncIterable<TodoEvent>;
  readonly writes: Writes;
  /** Functions of the followed lists that start them again, because a session began or ended. */
  readonly restarts: Set<() => void>;
}

/**
 * Follows the list of a service while something subscribes to it, and shows the effects of writes at once. Throws a
 * TypeError if the list to start from is only a page.
 */
export function followList(source: Source, options: FollowOptions): FollowedList {
  const subscribers = new Set<(state: LiveList) => void>();
  let overlay = new Overlay();
  /** The service's list, by ascending id. The list and the events belong to the same history, so each change applies. */
  let todos: Todo[] = [];
  let position: string | undefined;
  let connection: Pick<LiveList, "status" | "error"> = { status: "connecting" };
  /** The array of the last state, if it is current. It is a copy, because the user may change it. */
  let shown: Todo[] | undefined;
  let state: LiveList = { todos: [], status: "connecting" };
  let frame: ReturnType<typeof setTimeout> | undefined;
  /** Ends the run that keeps the list current. Absent without subscribers. */
  let stop: (() => void) | undefined;
  let reload = (): void => {};
  /** Resolves when the last write has its answer. */
  let written: Promise<unknown> = Promise.resolve();
  /** The ids that the service gave to new to-dos. */
  const ids = new Map<TodoId, TodoId>();

  const { from } = options;
  if (from?.next !== undefined) throw new TypeError("from: this is a page: load the list without a limit");
  if (from !== undefined) {
    setList(from);
    publish();
  }

  return {
    getState: () => state,
    subscribe,
    [Symbol.asyncIterator]: () => abortOnReturn(options.signal, states),
    create: (title, call = {}) =>
      write({ kind: "create", todo: { id: newId(), title, done: false } }, () =>
        source.writes.create(title, call),
      ),
    setDone: (id, done, call = {}) =>
      write({ kind: "setDone", todo: { ...find(id), done } }, (current) =>
        source.writes.setDone(current, done, call),
      ),
    delete: async (id, call = {}) => {
      await write({ kind: "delete", todo: find(id) }, (current) => source.writes.delete(current, call));
    },
  };

  function subscribe(onState: (state: LiveList) => void): () => void {
    // A function of its own, because the same function can subscribe twice.
    const subscriber = (next: LiveList): void => onState(next);
    subscribers.add(subscriber);
    source.restarts.add(restart);
    start();
    return () => {
      subscribers.delete(subscriber);
      if (subscribers.size > 0) return;
      source.restarts.delete(restart);
      stop?.();
    };
  }

  /** Forgets the list and the writes, because the next session may be another person's. */
  function reset(next: typeof connection): void {
    stop?.();
    overlay = new Overlay();
    todos = [];
    position = undefined;
    connection = next;
    publishChange();
  }

  function restart(): void {
    reset({ status: "connecting" });
    start();
  }

  async function* states(signal: AbortSignal): AsyncGenerator<LiveList, void, undefined> {
    const latest: LiveList[] = [];
    let wake = (): void => {};
    const unsubscribe = subscribe((next) => {
      latest[0] = next;
      wake();
    });
    signal.addEventListener("abort", () => {
      unsubscribe();
      wake();
    });
    while (!signal.aborted) {
      const next = latest.pop();
      if (next?.status === "failed" || next?.status === "signed-out") throw next.error;
      if (next !== undefined) yield next;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }

  /** Returns a to-do as it is shown. One that is not shown gets no title, so that its effect is not shown either. */
  function find(given: TodoId | bigint): Todo {
    const id = ids.get(String(given)) ?? String(given);
    return findTodo(overlay.apply(todos), id) ?? { id, title: "", done: false };
  }

  /** Shows a write at once, and sends it after the earlier ones. */
  function write<T extends Todo | undefined>(
    effect: Effect,
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> {
    const key = Symbol();
    overlay.add(key, effect, todos);
    const answered = written.then(() => sendWrite(key, send));
    written = answered.catch(() => {});
    publishChange();
    return answered;
  }

  async function sendWrite<T extends Todo | undefined>(
    key: symbol,
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> {
    const effect = overlay.get(key);
    if (effect === undefined) throw new TodoApiError("unauthorized", "the session has ended");
    const { kind, todo } = effect;
    try {
      if (kind !== "create" && isNewId(todo.id))
        throw new TodoApiError("todo_not_found", "the to-do was not created");
      const answer = await send(todo.id);
      const { result } = answer;
      if (kind === "create" && result !== undefined) ids.set(todo.id, result.id);
      overlay.confirm(key, { kind, todo: result ?? todo, position: answer.position });
      return result;
    } catch (error) {
      // The to-do does not exist any more, and the list may not know that yet.
      if (error instanceof TodoApiError && error.position !== undefined)
        overlay.confirm(key, { kind: "delete", todo, position: error.position });
      else overlay.remove(key);
      if (isUnauthorized(error)) restart();
      throw error;
    } finally {
      if (overlay.needsList) reload();
      publishChange();
    }
  }

  function start(): void {
    if (stop !== undefined || subscribers.size === 0 || options.signal?.aborted) return;
    const { signal, abort } = linkAbort(options.signal);
    stop = abort;
    connection = { status: "connecting" };
    signal.addEventListener("abort", () => {
      stop = undefined;
      clearTimeout(frame);
      frame = undefined;
    });
    synchronize(signal).catch((error) => {
      if (signal.aborted) return;
      abort();
      if (isUnauthorized(error)) return reset({ status: "signed-out", error });
      connection = { status: "failed", error };
      publish();
    });
  }

  /** Keeps the list current until the signal aborts. Rejects if the service rejects a request. */
  async function synchronize(signal: AbortSignal): Promise<void> {
    let isMissing = overlay.needsList;
    for (let attempt = 0; !signal.aborted; ) {
      let error: TodoApiError | undefined;
      const reading = linkAbort(signal);
      reload = () => {
        isMissing = true;
        reading.abort();
      };
      const call = { ...options, signal: reading.signal };
      try {
        let since = position;
        if (since === undefined || isMissing) {
          const onList = overlay.requestList();
          const list = await source.list({}, { ...call, retries: 0 });
          if (reading.signal.aborted) continue;
          isMissing = false;
          onList(list.position);
          setList(list);
          since = list.position;
          schedule();
        }
        attempt = 0;
        for await (const event of source.events({ ...call, since })) {
          if (reading.signal.aborted) break;
          isMissing = event.type === "resync";
          if (event.type === "resync") break;
          apply(event);
        }
      } catch (caught) {
        if (signal.aborted) return;
        if (!reading.signal.aborted) {
          if (!isTransient(caught)) throw caught;
          error = caught;
          connection = { status: "disconnected", error };
          schedule();
        }
      } finally {
        reading.abort();
      }
      await delay(retryDelay(attempt++, error), signal);
    }
  }

  function setList(list: TodoList): void {
    todos = list.todos.slice();
    shown = undefined;
    advance(list.position);
  }

  function apply(event: Exclude<TodoEvent, { type: "resync" }>): void {
    if (event.type === "disconnected") {
      const closed = new TodoApiError("network_error", "the service closed the event stream");
      connection = { status: "disconnected", error: event.error ?? closed };
    } else {
      if (event.type === "deleted") replace(event.id);
      else if (event.type !== "connected") replace(event.todo.id, event.todo);
      connection = { status: "connected" };
      advance(event.position);
    }
    schedule();
  }

  function advance(to: string): void {
    position = to;
    if (!overlay.isEmpty) shown = undefined;
    overlay.advance(to);
  }

  /** Puts a to-do in the place of its id, or nothing if it is deleted. */
  function replace(id: TodoId, ...todo: Todo[]): void {
    shown = undefined;
    const index = indexOf(todos, id);
    todos.splice(index, todos[index]?.id === id ? 1 : 0, ...todo);
  }

  /** Publishes a state after one frame, with the changes until then. */
  function schedule(): void {
    frame ??= setTimeout(publish, FRAME_MS);
  }

  function publishChange(): void {
    shown = undefined;
    publish();
  }

  function publish(): void {
    clearTimeout(frame);
    frame = undefined;
    shown ??= overlay.apply(todos).slice();
    state = { ...connection, ...(position !== undefined && { position }), todos: shown };
    for (const subscriber of subscribers) subscriber(state);
  }
}

const isUnauthorized = (error: unknown): boolean =>
  error instanceof TodoApiError && error.code === "unauthorized";
