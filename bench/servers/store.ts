/** What every peer keeps its to-dos and its one client in: a Map each. */
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

/** Clients by the SHA-256 (hex) of their token. */
export const clients = new Map([[process.env.CLIENT_SHA256, { name: "bench" }]]);
export const port = Number(process.env.PORT);
