/** The to-dos of a running server, by plain requests. */
import { expect } from "bun:test";

export interface ServedTodo {
  readonly id: number;
  readonly title: string;
  readonly done: boolean;
}

type RequestHeaders = Readonly<Record<string, string>>;

/** Sends a request such as `PATCH /api/todos/1`, with a body as JSON if there is one. */
export function sendJson(
  url: string,
  line: string,
  body?: unknown,
  headers: RequestHeaders = {},
): Promise<Response> {
  const [method = "", path = ""] = line.split(" ");
  return fetch(url + path, {
    method,
    headers: { "Content-Type": "application/json", ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

export const postTodo = (url: string, title: string, headers: RequestHeaders = {}): Promise<Response> =>
  sendJson(url, "POST /api/todos", { title }, headers);

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
