import { expect } from "bun:test";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { ServiceOptions } from "../src/http/service.ts";
import { formatPosition, type TodoStore } from "../src/todo.ts";
import { request, unchunked } from "./message.ts";
import { startService } from "./service.ts";
import { type FollowOptions, follow, type SseEvent, SseParser } from "./sse.ts";

/** A title of the greatest length and, in UTF-8, size. */
export const LONGEST_TITLE = "😀".repeat(120);
const PATIENCE_MS = 60_000;

/** Starts a service that closes its store at the end. */
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

/** Returns the store's position, as an event's id has it. */
export const here = async (store: TodoStore): Promise<string> => formatPosition(await store.position());

/** Returns the number in an event's id. */
export const nOf = (id: string): number => Number(id.replace(/^.*-/, ""));

/** Throws unless the events are exactly those of the positions from `first` to `last`. */
export function expectAll(events: readonly SseEvent[], first: number, last: number): void {
  const expected = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  expect(events.map(({ id }) => nOf(id))).toEqual(expected);
}

/** Requests the events since a position, and stops reading at the first bytes. */
export async function startReading(port: number, since: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(request(`GET /api/events?since=${since}`));
  const [first] = await once(socket, "data", { signal: AbortSignal.timeout(PATIENCE_MS) });
  socket.pause();
  socket.unshift(first);
  return socket;
}

/** Reads on to the end; throws when the stream is cut off, or nothing comes for a minute. */
export async function readOn(socket: Socket, parser = new SseParser()): Promise<SseEvent[]> {
  socket.setTimeout(PATIENCE_MS, () =>
    socket.destroy(new Error(`waited ${PATIENCE_MS / 1000} s for the end of a stream`)),
  );
  const chunks: Buffer[] = await Array.fromAsync(socket);
  const events = parser.take(Buffer.from(unchunked(Buffer.concat(chunks).toString("latin1")), "latin1"));
  parser.end();
  return events;
}
