import { openMemory } from "../src/storage/memory/store.ts";
import type { Position, TodoEvent, TodoStore } from "../src/todo.ts";

/** Yields the changes after a position one by one. */
export async function* eachEvent(
  store: Pick<TodoStore, "events">,
  after: Position,
  signal = new AbortController().signal,
): AsyncGenerator<TodoEvent, void, undefined> {
  for await (const batch of store.events(after, signal)) yield* batch;
}

/** Returns a store with some of its methods replaced: the given store, or a new one in memory. */
export function storeWith(answers: Partial<TodoStore>, store: TodoStore = openMemory()): TodoStore {
  return {
    insert: (title) => store.insert(title),
    get: (id) => store.get(id),
    list: (query) => store.list(query),
    setDone: (id, done) => store.setDone(id, done),
    delete: (id) => store.delete(id),
    position: () => store.position(),
    events: (after, signal) => store.events(after, signal),
    close: () => store.close(),
    ...answers,
  };
}

/** Returns a store that counts its event iterators (open and total), the events they yield, and calls of `position`. */
export function watch(watched: TodoStore) {
  let open = 0;
  let opened = 0;
  let read = 0;
  let positionsAsked = 0;
  async function* events(...from: Parameters<TodoStore["events"]>): AsyncGenerator<readonly TodoEvent[]> {
    open++;
    opened++;
    try {
      for await (const batch of watched.events(...from)) {
        read += batch.length;
        yield batch;
      }
    } finally {
      open--;
    }
  }
  const position = () => {
    positionsAsked++;
    return watched.position();
  };
  return {
    store: storeWith({ position, events }, watched),
    open: () => open,
    opened: () => opened,
    read: () => read,
    positionsAsked: () => positionsAsked,
  };
}
