import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { UsageError } from "./config.ts";

/** A shell's code for what Ctrl-C has ended. */
const INTERRUPTED_EXIT_CODE = 130;
/** Far more than a password may have. */
const LINE_MOST_BYTES = 1024;

/** A new password: on a terminal asked for twice, without echo; else the first line of standard input. */
export function readNewPassword(): Promise<string> {
  return process.stdin.isTTY ? askTwice() : firstLine(Bun.stdin.stream());
}

async function askTwice(): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({
    input: process.stdin,
    output: nowhere,
    terminal: true,
    historySize: 0,
  });
  terminal.on("SIGINT", () => {
    terminal.close();
    process.stderr.write("\n");
    process.exit(INTERRUPTED_EXIT_CODE);
  });
  // Else Ctrl-Z turns the echo on again, also where nothing can suspend.
  terminal.on("SIGTSTP", () => {});
  const lines = terminal[Symbol.asyncIterator]();
  const ask = async (prompt: string): Promise<string> => {
    process.stderr.write(prompt);
    const line = await lines.next();
    process.stderr.write("\n");
    if (line.done) throw new UsageError("no password was given: nothing is changed");
    return line.value;
  };
  try {
    const password = await ask("Password: ");
    if ((await ask("Again: ")) === password) return password;
    throw new UsageError("the two passwords differ: nothing is changed");
  } finally {
    terminal.close();
  }
}

/** Does not wait for the end of what may stay open. */
async function firstLine(input: ReadableStream<Uint8Array>): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of input) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.includes("\n") || bytes.length > LINE_MOST_BYTES) break;
  }
  return /^[^\n]*?(?=\r?\n|$)/.exec(bytes.toString())?.[0] ?? "";
}
