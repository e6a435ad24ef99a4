import { type Call, type Read, readDeletion, readPosition, toSegment } from "./exchange.ts";
import { readTodo } from "./json.ts";
import type { Transport } from "./transport.ts";
import type { CallOptions, CreateOptions, TodoId } from "./types.ts";

/** The service's answer to a write. */
export interface Answer<T> {
  readonly result: T;
  /** Where the service decided the write. Absent if a proxy or another origin hides the header. */
  readonly position: string | undefined;
}

export type Writes = ReturnType<typeof createWrites>;

/** Returns the writes of one client, with the positions of their answers. */
export function createWrites(request: Transport["request"]) {
  const send = <T>(call: Call, options: CallOptions | undefined, read: Read<T>) =>
    request(
      call,
      options,
      (response, text): Answer<T> => ({ result: read(response, text), position: readPosition(response) }),
    );
  return {
    create: (title: string, options: CreateOptions = {}) => {
      const { idempotencyKey = randomKey() } = options;
      return send({ method: "POST", path: "/api/todos", body: { title }, idempotencyKey }, options, readTodo);
    },
    setDone: (id: TodoId | bigint, done: boolean, options?: CallOptions) =>
      send({ method: "PATCH", path: todoPath(id), body: { done } }, options, readTodo),
    delete: (id: TodoId | bigint, options?: CallOptions) =>
      send({ method: "DELETE", path: todoPath(id) }, options, readDeletion),
  };
}

/** Returns a to-do's path. A string from elsewhere could contain a slash. */
export const todoPath = (id: TodoId | bigint): string => `/api/todos/${toSegment(id, "invalid_id")}`;

/** Returns 128 random bits. Pages over plain HTTP do not have `crypto.randomUUID`, and React Native has no `crypto`. */
function randomKey(): string {
  const numbers = new Uint32Array(4).map(() => Math.random() * 2 ** 32);
  globalThis.crypto?.getRandomValues(numbers);
  return numbers.join("-");
}
