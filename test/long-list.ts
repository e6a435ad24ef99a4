import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { openMemory } from "../src/storage/memory/store.ts";
import type { TodoStore } from "../src/todo.ts";
import { request, unchunked } from "./message.ts";

export const LONGEST_TITLE = "😀".repeat(120);

/** Requests a list, and stops reading after the first bytes. */
export async function startReading(port: number, path = "/api/todos"): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(request(`GET ${path}`));
  const [first] = await once(socket, "data");
  socket.pause();
  socket.unshift(first);
  return socket;
}

/** Reads to the end. */
export async function readOn(socket: Socket): Promise<{ etag: string; json: string }> {
  const chunks: Buffer[] = await Array.fromAsync(socket);
  const answer = Buffer.concat(chunks).toString("latin1");
  const etag = /^etag: "(.*)"\r$/im.exec(answer)?.[1] ?? "";
  return { etag, json: Buffer.from(unchunked(answer), "latin1").toString("utf8") };
}

/** Returns a store of to-dos with titles of 480 bytes. 30,000 of them exceed the buffers of any socket. */
export async function storeOf(count: number): Promise<TodoStore> {
  const store = openMemory();
  for (let index = 0; index < count; index++) await store.insert(LONGEST_TITLE);
  return store;
}
