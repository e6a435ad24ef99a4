import { Readable, Writable } from "node:stream";
import { runProgram } from "../src/cli/program.ts";
import type { CommandProcess } from "../src/cli/terminal/output.ts";
import type { Outcome } from "./command.ts";

/** Runs `todo` in this process, with pipes, until it ends. No signal reaches it. Otherwise as `runTodo`. */
export async function callTodo(
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
  input: string | Uint8Array = "",
): Promise<Outcome> {
  const [stdout, stderr] = [capture(), capture()];
  const process: CommandProcess = {
    env: { XDG_CONFIG_HOME: "/dev/null", ...variables },
    stdin: Readable.from([Buffer.from(input)]),
    stdout: stdout.stream,
    stderr: stderr.stream,
    once: () => {},
  };
  await runProgram(args, process);
  return { code: Number(process.exitCode ?? 0), stdout: stdout.text(), stderr: stderr.text() };
}

/** Returns a stream, and a function that returns what was written to it. */
function capture() {
  let text = "";
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      text += chunk;
      done();
    },
  });
  return { stream, text: () => text };
}
