import { expect } from "bun:test";
import type { Socket } from "node:net";
import type { ServiceOptions } from "../src/http/service.ts";
import { formatPosition, type TodoStore } from "../src/todo.ts";
import { readToEnd, unchunked } from "./raw-http.ts";
import { startService } from "./service.ts";
import { type FollowOptions, follow, type SseEvent, SseParser } from "./sse.ts";

const PATIENCE_MS = 60_000;

/** Starts a service that closes its store when it stops. */
export function serve<S extends TodoStore>(store: S, options: Partial<ServiceOptions> = {}) {
  const service = startService({ store, ...options });
  return {
    ...service,
    store,
    follow: (from?: FollowOptions) => follow(service.url, from),
    [Symbol.asyncDispose]: async () => {
      await service[Symbol.asyncDispose]();
      await store.close();
    },
  };
}

export const here = async (store: TodoStore): Promise<string> => formatPosition(await store.position());

export const nOf = (id: string): number => Number(id.replace(/^.*-/, ""));

/** Throws unless the events are exactly those of the positions from `first` to `last`. */
export function expectAll(events: readonly SseEvent[], first: number, last: number): void {
  const expected = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  expect(events.map(({ id }) => nOf(id))).toEqual(expected);
}

/** Reads to the end. Rejects if the stream is aborted, or if no byte arrives for a minute. */
export async function readOn(socket: Socket, parser = new SseParser()): Promise<SseEvent[]> {
  socket.setTimeout(PATIENCE_MS, () =>
    socket.destroy(new Error(`waited ${PATIENCE_MS / 1000} s for the end of a stream`)),
  );
  const events = parser.take(Buffer.from(unchunked(await readToEnd(socket)), "latin1"));
  parser.end();
  return events;
}
