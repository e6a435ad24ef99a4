import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { INTERRUPTED_EXIT_CODE, UsageError } from "./usage-error.ts";

/** More than the longest password. */
const MAX_LINE_BYTES = 1024;

/** Returns a new password: prompts for it twice without echo on a terminal, or else reads the first line of standard input. */
export function readNewPassword(): Promise<string> {
  return process.stdin.isTTY ? promptTwice() : firstLine(Bun.stdin.stream());
}

async function promptTwice(): Promise<string> {
  const noEcho = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({
    input: process.stdin,
    output: noEcho,
    terminal: true,
    historySize: 0,
  });
  terminal.on("SIGINT", () => {
    terminal.close();
    process.stderr.write("\n");
    process.exit(INTERRUPTED_EXIT_CODE);
  });
  // Otherwise Ctrl-Z would turn the echo on again.
  terminal.on("SIGTSTP", () => {});
  const lines = terminal[Symbol.asyncIterator]();
  const prompt = async (label: string): Promise<string> => {
    process.stderr.write(label);
    const line = await lines.next();
    process.stderr.write("\n");
    if (line.done) throw new UsageError("no password was entered; nothing was changed");
    return line.value;
  };
  try {
    const password = await prompt("Password: ");
    if ((await prompt("Again: ")) === password) return password;
    throw new UsageError("the two passwords differ; nothing was changed");
  } finally {
    terminal.close();
  }
}

/** Returns the first line, without waiting for the end of a stream that may stay open. */
async function firstLine(input: ReadableStream<Uint8Array>): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of input) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.includes("\n") || bytes.length > MAX_LINE_BYTES) break;
  }
  return /^[^\n]*?(?=\r?\n|$)/.exec(bytes.toString())?.[0] ?? "";
}
