import type { Socket } from "node:net";
import { openMemory } from "../src/storage/memory/store.ts";
import type { TodoStore } from "../src/todo.ts";
import { openPaused, readToEnd, request, unchunked } from "./raw-http.ts";

export const LONGEST_TITLE = "😀".repeat(120);

/** Requests a list, and stops reading after the first bytes. */
export function startReading(port: number, path = "/api/todos"): Promise<Socket> {
  return openPaused(port, request(`GET ${path}`));
}

/** Reads to the end. */
export async function readOn(socket: Socket): Promise<{ etag: string; json: string }> {
  const answer = await readToEnd(socket);
  const etag = /^etag: "(.*)"\r$/im.exec(answer)?.[1] ?? "";
  return { etag, json: Buffer.from(unchunked(answer), "latin1").toString("utf8") };
}

/** Returns a store of to-dos with titles of 480 bytes. 30,000 of them exceed the buffers of any socket. */
export async function storeOf(count: number): Promise<TodoStore> {
  const store = openMemory();
  for (let index = 0; index < count; index++) await store.insert(LONGEST_TITLE);
  return store;
}
