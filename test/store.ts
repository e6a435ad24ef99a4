import type { KeyStore } from "../src/credential/key.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { type Position, STORE_OPERATIONS, type TodoEvent, type TodoStore } from "../src/todo.ts";
import { LONGEST_TITLE } from "./raw-http.ts";

/** Returns a store of to-dos with titles of 480 bytes. 30,000 of them exceed the buffers of any socket. */
export async function storeOf(count: number): Promise<TodoStore> {
  const store = openMemory();
  for (let index = 0; index < count; index++) await store.insert(LONGEST_TITLE);
  return store;
}

/** Returns an export of to-dos with the ids 2, 4, …, every third one done. The last assigned id is three times their number. */
export function exportOf(todos: number): string {
  const lines = [`{"todoService":1,"lastId":"${todos * 3}","todos":${todos}}`];
  for (let i = 1; i <= todos; i++)
    lines.push(`{"id":${i * 2},"title":"to-do ${i} \\u0000 \\"😀","done":${i % 3 === 0}}`);
  return `${lines.join("\n")}\n`;
}

export async function* eachEvent(
  store: Pick<TodoStore, "events">,
  after: Position,
  signal = new AbortController().signal,
): AsyncGenerator<TodoEvent, void, undefined> {
  for await (const batch of store.events(after, signal)) yield* batch;
}

export const storeWith = (answers: Partial<TodoStore>, store: TodoStore = openMemory()): TodoStore =>
  replace(store, (name) => Reflect.get(answers, name));

export const storeOfOnly = (answer: (operation: string) => () => unknown): TodoStore =>
  replace(openMemory(), (name) =>
    typeof name !== "string" || !(name in STORE_OPERATIONS) || name === "checkWrites" || name === "close"
      ? undefined
      : answer(name),
  );

export const keysWith = (answers: Partial<KeyStore>, keys: KeyStore): KeyStore =>
  replace(keys, (name) => Reflect.get(answers, name));

function replace<T extends object>(store: T, find: (name: string | symbol) => unknown): T {
  return new Proxy(store, {
    get: (_store, name) => {
      const value: unknown = Reflect.get(store, name);
      // A method of the proxy could not use the private fields of the store.
      return find(name) ?? (typeof value === "function" ? value.bind(store) : value);
    },
  });
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
