import { expect } from "bun:test";
import { Readable, Writable } from "node:stream";
import { runProgram } from "../src/cli/program.ts";
import type { CommandProcess } from "../src/cli/terminal/output.ts";
import type { Outcome } from "./command.ts";

/** `todo` that runs in this process, with pipes or a terminal that is shown as text. */
export interface CalledTodo {
  readonly ended: Promise<Outcome>;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly interrupt: () => void;
}

interface CallOptions {
  readonly input?: string | Uint8Array | Readable;
  /** The width of a terminal; without it, the outputs are pipes. */
  readonly columns?: number;
}

export function startTodo(
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  { input = "", columns }: CallOptions = {},
): CalledTodo {
  const [stdout, stderr] = [capture(columns), capture(columns)];
  const interrupts: (() => void)[] = [];
  const process: CommandProcess = {
    env: { XDG_CONFIG_HOME: "/dev/null", ...variables },
    stdin: input instanceof Readable ? input : Readable.from([Buffer.from(input)]),
    stdout: stdout.stream,
    stderr: stderr.stream,
    once: (signal, listener) => signal === "SIGINT" && interrupts.push(listener),
  };
  const ended = runProgram(args, process).then(() => ({
    code: Number(process.exitCode ?? 0),
    stdout: stdout.text(),
    stderr: stderr.text(),
  }));
  const interrupt = () => {
    for (const listener of interrupts.splice(0)) listener();
  };
  return { ended, stdout: stdout.text, stderr: stderr.text, interrupt };
}

/** Runs `todo` in this process, with pipes, until it ends. Otherwise as `runTodo`. */
export const callTodo = (
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input: string | Uint8Array = "",
): Promise<Outcome> => startTodo(args, variables, { input }).ended;

/** Returns the one line on standard error of a command that fails before it prints anything else, without its `todo: `. */
export async function complaintOf(outcome: Outcome | Promise<Outcome>, exitCode = 2): Promise<string> {
  const { code, stdout, stderr } = await outcome;
  expect([code, stdout]).toEqual([exitCode, ""]);
  expect(stderr).toMatch(/^todo: [^\n]*\n$/);
  return stderr.slice("todo: ".length, -1);
}

export const jsonLines = (output: string) =>
  output
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

function capture(columns: number | undefined) {
  let text = "";
  const writable = new Writable({
    write: (chunk, _encoding, done) => {
      text += chunk;
      done();
    },
  });
  const stream = columns === undefined ? writable : Object.assign(writable, { isTTY: true, columns });
  return { stream, text: () => text };
}
