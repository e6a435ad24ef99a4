/** The decimal digits of an unsigned 64-bit integer, starting at 1. A number would lose digits above 2^53. */
export type TodoId = string;

export interface Todo {
  readonly id: TodoId;
  readonly title: string;
  readonly done: boolean;
}

/** Returns a to-do as the service creates it. */
export const newTodo = (id: TodoId, title: string): Todo => ({ id, title, done: false });

export const isSameTodo = (a: Todo, b: Todo): boolean =>
  a.id === b.id && a.title === b.title && a.done === b.done;
