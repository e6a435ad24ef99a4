import { type Command, runTodo } from "./command.ts";
import { createTodo } from "./served-todos.ts";

/** Starts a server on a free port. */
export const serve = (...args: readonly string[]): Command => runTodo(["serve", "--port", "0", ...args]);

/** Returns the URL of a server's metrics, from its log. */
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
