/** The store of every peer: one Map of to-dos and one of clients. */
import { hash, timingSafeEqual } from "node:crypto";

export interface Todo {
  id: number;
  title: string;
  done: boolean;
}

const todos = new Map<number, Todo>();

export const insert = (title: string): Todo => {
  const todo = { id: todos.size + 1, title, done: false };
  todos.set(todo.id, todo);
  return todo;
};
export const get = (id: number) => todos.get(id);
export const list = () => [...todos.values()];
/** The number of changes, which is the ETag of the list. */
export const version = () => todos.size;

/** Clients by the SHA-256 (hex) of their token. */
export const clients = new Map([[process.env.CLIENT_SHA256, { name: "bench" }]]);

const CLIENT_HASH = Buffer.from(process.env.CLIENT_SHA256 ?? "", "hex");
const hashes = new Map([[CLIENT_HASH.toString("latin1"), { name: "bench", tokenHash: CLIENT_HASH }]]);

/** Finds a client by the hash of its token, and compares the hashes in constant time, as the product does. */
export function findClient(token: string): { readonly name: string } | undefined {
  const tokenHash = hash("sha256", token, "buffer");
  const client = hashes.get(tokenHash.latin1Slice());
  return client !== undefined && timingSafeEqual(client.tokenHash, tokenHash) ? client : undefined;
}

export const port = Number(process.env.PORT);
