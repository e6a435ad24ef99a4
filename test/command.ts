import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));

export interface Command extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with the exit code, or with undefined if a signal ended the process. */
  readonly exited: Promise<number | undefined>;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly kill: (signal: NodeJS.Signals) => void;
  /** Resolves with the URL on which the server listens. Rejects if the process ends before that. */
  readonly url: Promise<string>;
}

/** Runs `todo` with these arguments and variables. Of the other variables, it gets only PATH and HOME. No login is stored. */
export function runTodo(
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input?: string | Uint8Array,
): Command {
  return run(["bin/todo", ...args], variables, input);
}

export interface Outcome {
  /** Undefined if a signal ended the process. */
  readonly code: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

export async function ended(command: Command): Promise<Outcome> {
  await using running = command;
  return { code: await running.exited, stdout: running.stdout(), stderr: running.stderr() };
}

/** Waits until a process ends with success. Returns its standard output. */
export async function succeed(command: Command): Promise<string> {
  const { code, stdout, stderr } = await ended(command);
  if (code !== 0) throw new Error(`a command ended with ${code}: ${stdout}${stderr}`);
  return stdout;
}

/** Runs a command line in the project's root. Standard input is `input`, or empty. */
export const run = (
  commandLine: readonly string[],
  variables?: Readonly<Record<string, string>>,
  input?: string | Uint8Array,
): Command => runIn(ROOT, commandLine, variables, input);

export function runIn(
  folder: string,
  commandLine: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input?: string | Uint8Array,
): Command {
  const { PATH = "", HOME = "" } = process.env;
  const child = Bun.spawn([...commandLine], {
    cwd: folder,
    env: { PATH, HOME, XDG_CONFIG_HOME: "/dev/null", ...variables },
    stdin: input === undefined ? "ignore" : Buffer.from(input),
    stdout: "pipe",
    stderr: "pipe",
  });
  const listening = Promise.withResolvers<string>();
  const stdout = collect(child.stdout, (text) => {
    const url = /"url":"([^"]+)"/.exec(text)?.[1];
    if (url !== undefined) listening.resolve(url);
  });
  const stderr = collect(child.stderr);
  const exited = Promise.all([child.exited, stdout.done, stderr.done]).then(([code]) => {
    listening.reject(new Error(`the process ended with ${code} before it listened: ${stderr.text()}`));
    return child.signalCode === null ? code : undefined;
  });
  listening.promise.catch(() => {});
  return {
    pid: child.pid,
    exited,
    stdout: stdout.text,
    stderr: stderr.text,
    kill: (signal) => child.kill(signal),
    url: listening.promise,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Reads a stream to its end. Returns the text so far. */
export function collect(stream: ReadableStream<Uint8Array>, onText: (all: string) => void = () => {}) {
  let all = "";
  const read = async (): Promise<void> => {
    const decoder = new TextDecoder();
    for await (const chunk of stream) {
      all += decoder.decode(chunk, { stream: true });
      onText(all);
    }
  };
  return { text: () => all, done: read() };
}
