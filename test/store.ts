import { openMemory } from "../src/storage/memory/store.ts";
import type { TodoEvent, TodoStore } from "../src/todo.ts";

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
  async function* events(...from: Parameters<TodoStore["events"]>): AsyncGenerator<TodoEvent> {
    open++;
    opened++;
    try {
      for await (const event of watched.events(...from)) {
        read++;
        yield event;
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
