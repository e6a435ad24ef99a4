import { openMemory } from "../src/storage/memory/store.ts";
import type { TodoEvent, TodoStore } from "../src/todo.ts";

/** A store, one in memory unless another is given, with some of its answers replaced. */
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

/** A store that counts its event iterators, those open now and all, what they yielded, and requests for its position. */
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
