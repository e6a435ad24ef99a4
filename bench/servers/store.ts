/** The store of every peer: one Map of to-dos and one of clients. */
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
export const port = Number(process.env.PORT);
