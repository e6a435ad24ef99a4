/** The to-dos of a running server, by plain requests. */
import { expect } from "bun:test";

export interface ServedTodo {
  readonly id: number;
  readonly title: string;
  readonly done: boolean;
}

/** Asks a server to create a to-do. Returns the response, whatever it is. */
export const postTodo = (
  url: string,
  title: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> =>
  fetch(`${url}/api/todos`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ title }),
  });

/** Creates a to-do, and returns it. */
export async function createTodo(url: string, title: string): Promise<ServedTodo> {
  const response = await postTodo(url, title);
  expect(response.status).toBe(201);
  return JSON.parse(await response.text());
}

export async function listTodos(url: string): Promise<readonly ServedTodo[]> {
  const response = await fetch(`${url}/api/todos`);
  expect(response.status).toBe(200);
  return JSON.parse(await response.text());
}
