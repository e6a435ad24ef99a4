import { openMemory } from "../src/storage/memory.ts";
import type { TodoStore } from "../src/todo.ts";

/** A memory store with some of its answers replaced. */
export function storeWith(answers: Partial<TodoStore>): TodoStore {
  const store = openMemory();
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
