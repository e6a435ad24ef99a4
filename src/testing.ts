/**
 * Starts a service of its own for each test, in Node 22 and later and in Bun.
 *
 * @module
 */
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { closest } from "fastest-levenshtein";
import { bypassProxiesOnLoopback } from "./proxy-variables.ts";

export interface TestServiceOptions {
  /** The to-dos at the start: titles, or titles with their state. Their ids start at 1. */
  readonly todos?: readonly (string | { readonly title: string; readonly done?: boolean })[];
  /** A file with the to-dos at the start, as `todo serve --seed` takes it. */
  readonly seed?: string;
  /** Whether all data needs credentials. Default: false. */
  readonly private?: boolean;
  /** A slow or failing service, such as `latency=200ms,errors=10%`. */
  readonly simulate?: string;
  /** More arguments of `todo serve`, such as `["--max-todos", "1"]`. */
  readonly args?: readonly string[];
}

export interface TestService {
  /** The address, such as `http://127.0.0.1:41234`. */
  readonly url: string;
  /** The token of a client that may do everything. Private mode and `/api/whoami` need one. */
  readonly token: string;
  /** Stops the server. Resolves when it has ended. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a server on a free port, with an empty store in memory. Rejects with the server's own message if an option is
 * wrong, and with a TypeError for an unknown one. What the server writes to standard error later appears on standard error.
 * From then on, this process reaches loopback addresses without the proxies of its variables.
 *
 * @example
 * ```ts
 * import { startTodoService } from "todo-service/testing";
 *
 * const service = await startTodoService({ todos: ["buy milk", { title: "call Ada", done: true }] });
 * const todos = await (await fetch(`${service.url}/api/todos`)).json();
 * console.log(todos);
 * await service.stop();
 * ```
 */
export async function startTodoService(options: TestServiceOptions = {}): Promise<TestService> {
  bypassProxiesOnLoopback(process.env);
  const folder = await mkdtemp(join(tmpdir(), "todo-testing-"));
  const removeFolder = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const token = randomBytes(32).toString("base64url");
    const args = await toArguments(options, token, folder);
    const { url, stop } = await startServer(args);
    return { url, token, stop: () => stop().then(removeFolder) };
  } catch (error) {
    await removeFolder();
    throw error;
  }
}

async function toArguments(
  given: TestServiceOptions,
  token: string,
  folder: string,
): Promise<readonly string[]> {
  const { todos, seed, private: isPrivate = false, simulate, args = [] } = given;
  assertNames("", given, ["todos", "seed", "private", "simulate", "args"]);
  if (todos !== undefined && seed !== undefined) throw new TypeError("todos and seed are both set: keep one");
  const clients = join(folder, "clients");
  await writeFile(clients, `test:${createHash("sha256").update(token).digest("hex")}\n`, { mode: 0o600 });
  const lines = todos?.map((todo, index) => {
    const { title, done = false } = typeof todo === "string" ? { title: todo } : todo;
    if (typeof todo !== "string") assertNames(`todos[${index}]: `, todo, ["title", "done"]);
    return `${JSON.stringify({ id: index + 1, title, done })}\n`;
  });
  const file = lines === undefined || lines.length === 0 ? seed : join(folder, "todos.ndjson");
  if (file !== undefined && file !== seed) await writeFile(file, lines?.join("") ?? "");
  return [
    ...["--port", "0", "--clients-file", clients],
    ...(file === undefined ? [] : ["--seed", file]),
    ...(isPrivate ? ["--private"] : []),
    ...(simulate === undefined ? [] : ["--simulate", simulate]),
    ...args,
  ];
}

/** Throws a TypeError if an object has another member than the known ones. */
function assertNames(where: string, given: object, known: readonly string[]): void {
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    throw new TypeError(`${where}unknown option "${name}": did you mean ${closest(name, known)}?`);
  }
}

const PROGRAM = fileURLToPath(new URL("../bin/todo", import.meta.url));

/** Resolves when the server listens. Rejects with what it says on standard error if it ends before. */
async function startServer(args: readonly string[]) {
  // Settings of the user's environment must not change the test.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(?:TODO_|PORT$)/.test(name)),
  );
  const server = spawn(PROGRAM, ["serve", ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise<string>((resolve) => {
    server.on("error", ({ message }) => resolve(message));
    server.on("close", (code, signal) => resolve(`todo serve ended with ${signal ?? `exit code ${code}`}`));
  });
  const kill = (): boolean => server.kill();
  process.on("exit", kill);
  ended.then(() => process.off("exit", kill));
  let said = "";
  const collect = (text: Buffer): void => {
    said += text;
  };
  server.stderr.on("data", collect);
  for await (const line of createInterface({ input: server.stdout })) {
    const url = listeningUrl(line);
    if (url === undefined) continue;
    server.stdout.resume();
    server.stderr.off("data", collect);
    server.stderr.pipe(process.stderr, { end: false });
    const stop = async (): Promise<void> => {
      kill();
      await ended;
    };
    return { url, stop };
  }
  throw new Error(`${await ended}\n${said}`.trim());
}

/** Returns the address in the line of the log that has it. Other programs may write other lines before. */
function listeningUrl(line: string): string | undefined {
  if (!/"msg":"listening"/.test(line)) return undefined;
  const entry: { readonly url?: unknown } = JSON.parse(line);
  return typeof entry.url === "string" ? entry.url : undefined;
}
