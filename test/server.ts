import { expect } from "bun:test";
import { jsonLines } from "./call-todo.ts";
import { type Command, runTodo } from "./command.ts";
import { createTodo } from "./served-todos.ts";

/** Starts a server on a free port. Otherwise as `runTodo`. */
export const serve = (args: readonly string[] = [], variables?: Readonly<Record<string, string>>): Command =>
  runTodo(["serve", "--port", "0", ...args], variables);

export const serveFile = (path: string): Command => serve(["--store", `sqlite:${path}`]);

export const portOf = async (server: Command): Promise<number> => Number(new URL(await server.url).port);

/** Stops a server, so that all its output is available. Returns its log. */
export async function stop(server: Command) {
  server.kill("SIGTERM");
  expect(await server.exited).toBe(0);
  return jsonLines(server.stdout());
}

export async function kill(command: Command): Promise<void> {
  command.kill("SIGKILL");
  await command.exited;
}

export async function metricsUrl(server: Command): Promise<string> {
  await server.url;
  return /"metricsUrl":"([^"]+)"/.exec(server.stdout())?.[1] ?? "";
}

export async function scrape(server: Command): Promise<string> {
  return (await fetch(await metricsUrl(server))).text();
}

/** Creates to-dos, all at once. */
export async function store(server: Command, todos: number): Promise<void> {
  const url = await server.url;
  await Promise.all(Array.from({ length: todos }, () => createTodo(url, "x")));
}
