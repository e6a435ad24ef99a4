import { expect } from "bun:test";
import { randomUUID } from "node:crypto";
import { type Command, run } from "./command.ts";
import { listTodos, postTodo } from "./served-todos.ts";
import { reasonAgainst } from "./tools.ts";

const WRITERS = 4;
const POSTS_EACH = 25;

const probe = run(["sh", "-c", "exec strace -f --seccomp-bpf -e trace=fsync -o /dev/null true"]);
const probed = await probe.exited;

export const whyUntraceable =
  probed === 0 ? undefined : reasonAgainst("strace", `cannot trace: ${probe.stderr().split("\n")[0]}`);

/** When strace injects faults, it counts the calls of each thread separately. */
export function serveTraced(path: string, options: readonly string[], main = "src/cli/main.ts"): Command {
  // With -D, the child process is the server, not strace, so signals reach the server.
  const strace = ["strace", "-D", "-f", "--seccomp-bpf", ...options];
  const todo = [process.execPath, "--no-env-file", main, "serve", "--port", "0", "--store", `sqlite:${path}`];
  return run([...strace, ...todo]);
}

export interface Call {
  readonly name: string;
  /** The arguments as strace shows them, except that strings are decoded: one character per byte. */
  readonly args: string;
  readonly result: number;
  /** The lines of the call in the trace. The line of a call's cause comes earlier. */
  readonly began: number;
  readonly ended: number;
}

/** The system calls on files and sockets while to-dos were created, each with its own title. */
export interface Trace {
  /** The calls, in the order in which they returned. */
  readonly calls: readonly Call[];
  readonly titles: readonly string[];
}

/** Several writers create to-dos until kill -9. `inject` is the fault that strace injects. */
export async function tracePosts(path: string, main?: string, inject?: string): Promise<Trace> {
  const output = `${path}.trace`;
  const calls = "openat,pwrite64,ftruncate,fsync,fdatasync,unlink,write,writev,sendto,sendmsg";
  const titles: string[] = [];
  {
    const faults = inject === undefined ? [] : ["-e", `inject=${inject}`];
    const options = ["-xx", "-y", "-s", "8192", "-e", `trace=${calls}`, ...faults, "-o", output];
    await using server = serveTraced(path, options, main);
    const url = await server.url;
    const write = async (): Promise<void> => {
      for (let i = 0; i < POSTS_EACH; i++) {
        const title = randomUUID();
        const response = await postTodo(url, title);
        expect(response.status).toBeOneOf(inject === undefined ? [201] : [201, 503]);
        await response.arrayBuffer();
        if (response.ok) titles.push(title);
      }
    };
    await Promise.all(Array.from({ length: WRITERS }, write));
    // When this request is answered, the calls that sent the earlier responses have returned and are in the trace.
    await listTodos(url);
  }
  return { calls: parse(await Bun.file(output).text()), titles };
}

/** Returns the calls that synced, linked and renamed files, from the trace at this path. */
export async function traceCommand(
  args: readonly string[],
  output: string,
  input?: string,
): Promise<readonly Call[]> {
  const calls = "fsync,fdatasync,link,linkat,rename,renameat,renameat2";
  const strace = ["strace", "-f", "--seccomp-bpf", "-xx", "-y", "-e", `trace=${calls}`, "-o", output];
  const todo = [process.execPath, "--no-env-file", "src/cli/main.ts", ...args];
  await using command = run([...strace, ...todo], {}, input);
  expect([await command.exited, command.stderr()]).toEqual([0, ""]);
  return parse(await Bun.file(output).text());
}

const LINE = /^(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*?)(?: <unfinished \.\.\.>|\) += (-?\d+).*)$/;

function parse(trace: string): Call[] {
  const calls: Call[] = [];
  const unfinished = new Map<string, { readonly args: string; readonly began: number }>();
  for (const [line, text] of trace.split("\n").entries()) {
    const [, thread, name, shown, result] = LINE.exec(text) ?? [];
    if (thread === undefined || name === undefined || shown === undefined) continue;
    const { args, began } = unfinished.get(thread) ?? { args: "", began: line };
    unfinished.delete(thread);
    if (result === undefined) unfinished.set(thread, { args: shown, began });
    else calls.push({ name, args: unhex(args + shown), result: Number(result), began, ended: line });
  }
  return calls;
}

const unhex = (text: string): string =>
  text.replace(/\\x([0-9a-f]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));

export const isCreated = ({ args }: Call): boolean => args.includes('"HTTP/1.1 201 ');

export const isSync = ({ name }: Call): boolean => name === "fsync" || name === "fdatasync";

export const syncs = (call: Call, path: string): boolean =>
  isSync(call) && call.args.endsWith(`<${path}>`) && call.result === 0;
