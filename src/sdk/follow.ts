import { abortOnReturn, linkAbort } from "./abort.ts";
import { compareIds, findTodo, indexOf } from "./json.ts";
import { type Effect, isNewId, newId, Overlay } from "./overlay.ts";
import { delay, isRecoverable, retryDelay } from "./retry.ts";
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
/** How many new to-dos can still be addressed by the id that they had before their answer. */
const MAX_IDS = 1000;

type Connection = Pick<LiveList, "status" | "error">;

/** The calls that a followed list is made from. */
export interface Source {
  readonly list: (options: CallOptions) => Promise<TodoList>;
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
  let connection: Connection = { status: "connecting" };
  /** The to-dos of the last state. Its array is a copy, because the user may change it. */
  let shown: readonly Todo[] = [];
  let state: LiveList = { ...connection, todos: [] };
  let frame: ReturnType<typeof setTimeout> | undefined;
  /** Ends the run that keeps the list current. Absent without subscribers. */
  let stop: (() => void) | undefined;
  /** Ends the event stream, so that the list is loaded again. */
  let endStream = (): void => {};
  /** Resolves when the last write has its answer. */
  let written: Promise<unknown> = Promise.resolve();
  /** The ids that the service gave to the latest new to-dos. */
  const ids = new Map<TodoId, TodoId>();

  const { from } = options;
  if (from?.next !== undefined) throw new TypeError("from: a page is not the whole list");
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
    delete: (id, call = {}) =>
      write({ kind: "delete", todo: find(id) }, (current) => source.writes.delete(current, call)),
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
  function reset(next: Connection): void {
    stop?.();
    overlay = new Overlay();
    ids.clear();
    todos = [];
    position = undefined;
    connection = next;
    publish();
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
    publish();
    return answered;
  }

  async function sendWrite<T extends Todo | undefined>(
    key: symbol,
    send: (id: TodoId) => Promise<Answer<T>>,
  ): Promise<T> {
    const effect = overlay.get(key);
    if (effect === undefined) throw new TodoApiError("unauthorized", "signed out");
    const { kind, todo } = effect;
    try {
      if (kind !== "create" && isNewId(todo.id))
        throw new TodoApiError("todo_not_found", "the to-do was not created");
      const { result, position } = await send(todo.id);
      if (kind === "create" && result !== undefined) ids.set(todo.id, result.id);
      const [oldest] = ids.keys();
      if (oldest !== undefined && ids.size > MAX_IDS) ids.delete(oldest);
      overlay.confirm(key, { kind, todo: result ?? todo, position });
      return result;
    } catch (error) {
      // The to-do does not exist any more, and the list may not know that yet.
      if (error instanceof TodoApiError && error.position !== undefined)
        overlay.confirm(key, { kind: "delete", todo, position: error.position });
      else overlay.remove(key);
      if (isUnauthorized(error)) restart();
      throw error;
    } finally {
      if (overlay.needsList) endStream();
      publish();
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
    let isMissing = false;
    for (let attempt = 0; !signal.aborted; ) {
      let error: TodoApiError | undefined;
      const stream = linkAbort(signal);
      try {
        // Again, if a write of another epoch was answered while the list was loading.
        while (position === undefined || isMissing || overlay.needsList) {
          const { answered } = overlay;
          const list = await source.list({ ...options, signal, retries: 0 });
          if (signal.aborted) return;
          isMissing = false;
          setList(list, answered);
          schedule();
        }
        attempt = 0;
        endStream = stream.abort;
        for await (const event of source.events({ ...options, signal: stream.signal, since: position })) {
          if (stream.signal.aborted) break;
          if (event.type === "resync") {
            isMissing = true;
            connection = { status: "connecting" };
            break;
          }
          apply(event);
        }
      } catch (caught) {
        if (signal.aborted) return;
        if (!isRecoverable(caught)) throw caught;
        error = caught;
        apply({ type: "disconnected", error });
      } finally {
        stream.abort();
      }
      await delay(retryDelay(attempt++, error), signal);
    }
  }

  function setList(list: TodoList, answered?: ReadonlySet<unknown>): void {
    todos = list.todos.slice();
    advance(list.position, answered);
  }

  function apply(event: Exclude<TodoEvent, { type: "resync" }>): void {
    if (event.type === "disconnected") {
      connection = { status: "disconnected", error: event.error };
    } else {
      if (event.type === "deleted") replace(event.id);
      else if (event.type !== "connected") replace(event.todo.id, event.todo);
      connection = { status: "connected" };
      advance(event.position);
    }
    schedule();
  }

  function advance(to: string, answered?: ReadonlySet<unknown>): void {
    position = to;
    overlay.advance(to, answered);
  }

  /** Puts a to-do in the place of its id, or nothing if it is deleted. */
  function replace(id: TodoId, ...todo: Todo[]): void {
    const index = indexOf(todos, id);
    todos.splice(index, todos[index]?.id === id ? 1 : 0, ...todo);
  }

  /** Publishes a state after one frame, with the changes until then. */
  function schedule(): void {
    frame ??= setTimeout(publish, FRAME_MS);
  }

  /** Publishes a state if it differs from the last one. */
  function publish(): void {
    clearTimeout(frame);
    frame = undefined;
    const next = reuse(overlay.apply(todos), shown);
    const isSame = next.length === shown.length && next.every((todo, index) => todo === shown[index]);
    const { status, error } = connection;
    if (isSame && state.position === position && state.status === status && state.error === error) return;
    state = {
      ...connection,
      ...(position !== undefined && { position }),
      todos: isSame ? state.todos : next.slice(),
    };
    shown = next;
    for (const subscriber of subscribers) subscriber(state);
  }
}

/** Returns to-dos, with the objects of `before` for those that are equal. Both are by ascending id. */
function reuse(todos: readonly Todo[], before: readonly Todo[]): readonly Todo[] {
  let index = 0;
  return todos.map((todo) => {
    let known = before[index];
    while (known !== undefined && known !== todo && compareIds(known.id, todo.id) < 0)
      known = before[++index];
    return known?.id === todo.id && known.title === todo.title && known.done === todo.done ? known : todo;
  });
}

/** Returns whether the service rejected the credentials. */
export const isUnauthorized = (error: unknown): boolean =>
  error instanceof TodoApiError && error.code === "unauthorized";
