import { indexOf } from "./json.ts";
import type { Overlay } from "./overlay.ts";
import { delay, isRecoverable, retryDelay } from "./retry.ts";
import type { CallOptions, LiveList, Todo, TodoApiError, TodoEvent, TodoList } from "./types.ts";

/** A whole list, by ascending id. */
export type Snapshot = Pick<TodoList, "position"> & { readonly todos: readonly Todo[] };

/** The calls that keep a list current. */
export interface ListSource {
  readonly list: (options: CallOptions) => Promise<Snapshot>;
  readonly events: (options: CallOptions & { readonly since: string }) => AsyncIterable<TodoEvent>;
}

/** The list as the service has it, and the state of the connection. */
export interface ConfirmedList {
  /** By ascending id. Each change makes a new array. */
  todos: readonly Todo[];
  /** Absent until the list has loaded. */
  position: string | undefined;
  /** The list must be loaded before events can continue it, because only then both belong to one history. */
  isStale: boolean;
  status: LiveList["status"];
  error?: LiveList["error"] | undefined;
}

/** Returns a list before its first event. */
export const startList = ({ todos = [], position }: Partial<Snapshot> = {}): ConfirmedList => ({
  todos,
  position,
  isStale: position === undefined,
  status: "connecting",
});

/**
 * Loads a stale list, and keeps it current until the signal aborts. Rejects if the service rejects a request.
 * @param overlay the effects that leave with a new list
 * @param onChange runs after each change of the list and of the connection
 */
export async function synchronize(
  list: ConfirmedList,
  overlay: Overlay,
  source: ListSource,
  options: CallOptions & { readonly signal: AbortSignal },
  onChange: () => void,
): Promise<void> {
  const { signal } = options;
  for (let attempt = 0; !signal.aborted; ) {
    let error: TodoApiError | undefined;
    try {
      if (list.isStale) {
        const { answers } = overlay;
        const { todos, position } = await source.list({ ...options, retries: 0 });
        if (signal.aborted) return;
        overlay.advance(position, answers);
        Object.assign(list, { todos, position, isStale: false });
        onChange();
      }
      attempt = 0;
      for await (const event of source.events({ ...options, since: list.position ?? "" })) {
        if (signal.aborted) return;
        applyEvent(list, event);
        onChange();
        if (event.type === "resync") break;
      }
    } catch (caught) {
      if (signal.aborted) return;
      if (!isRecoverable(caught)) throw caught;
      error = caught;
      applyEvent(list, { type: "disconnected", error });
      onChange();
    }
    await delay(retryDelay(attempt++, error), signal);
  }
}

function applyEvent(list: ConfirmedList, event: TodoEvent): void {
  const { type } = event;
  if (type === "disconnected") return void Object.assign(list, { status: type, error: event.error });
  list.error = undefined;
  // The to-dos keep their position. Otherwise, writes until the next list could not tell that it is of another store.
  if (type === "resync") return void Object.assign(list, { status: "connecting", isStale: true });
  Object.assign(list, { status: "connected", position: event.position });
  if ("todo" in event) list.todos = replace(list.todos, event.todo.id, event.todo);
  if ("id" in event) list.todos = replace(list.todos, event.id);
}

/** Returns to-dos with another one in the place of its id, or with none if it is deleted. */
function replace(todos: readonly Todo[], id: string, ...todo: readonly Todo[]): readonly Todo[] {
  const index = indexOf(todos, id);
  return [...todos.slice(0, index), ...todo, ...todos.slice(index + Number(todos[index]?.id === id))];
}
