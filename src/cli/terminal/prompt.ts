import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { asUsageError, interrupted, UsageError } from "../../config/usage-error.ts";
import { decodeUtf8 } from "../../text.ts";
import type { CommandProcess } from "./output.ts";

/** More than the longest password or token. */
const MAX_LINE_BYTES = 16 * 1024;

/** Prints a label, and resolves with the next line that is typed. */
type Prompt = (label: string) => Promise<string>;

/** Returns a new password: prompts for it twice without echo on a terminal, or else reads the first line of standard input. */
export function readNewPassword(process: CommandProcess): Promise<string> {
  return readSecret(process, async (prompt) => {
    const password = await prompt("Password: ");
    if ((await prompt("Again: ")) === password) return password;
    throw new UsageError("the two passwords differ; nothing was changed");
  });
}

/** Returns a token: prompts for it without echo on a terminal, or else reads the first line of standard input. */
export const readToken = (process: CommandProcess): Promise<string> =>
  readSecret(process, (prompt) => prompt("Token: "));

async function readSecret(
  process: CommandProcess,
  ask: (prompt: Prompt) => Promise<string>,
): Promise<string> {
  const secret = process.stdin.isTTY ? await askOnTerminal(process, ask) : await firstLine(process.stdin);
  if (secret === "") throw nothingEntered();
  return secret;
}

const nothingEntered = () => new UsageError("nothing was entered; nothing was changed");

async function askOnTerminal(
  { stdin, stderr }: CommandProcess,
  ask: (prompt: Prompt) => Promise<string>,
): Promise<string> {
  const noEcho = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: stdin, output: noEcho, terminal: true, historySize: 0 });
  const interrupt = Promise.withResolvers<never>();
  terminal.on("SIGINT", () => interrupt.reject(interrupted()));
  // Otherwise Ctrl-Z would turn the echo on again.
  terminal.on("SIGTSTP", () => {});
  const lines = terminal[Symbol.asyncIterator]();
  const prompt: Prompt = async (label) => {
    stderr.write(label);
    const line = await Promise.race([lines.next(), interrupt.promise]).finally(() => stderr.write("\n"));
    if (line.done) throw nothingEntered();
    return line.value;
  };
  try {
    return await ask(prompt);
  } finally {
    terminal.close();
  }
}

/** Returns the first line, without waiting for the end of a stream that may stay open. */
async function firstLine(input: AsyncIterable<Uint8Array>): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of input) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.includes("\n") || bytes.length > MAX_LINE_BYTES) break;
  }
  const end = bytes.indexOf("\n");
  const line = bytes.subarray(0, end < 0 ? bytes.length : end);
  return asUsageError("standard input", () => decodeUtf8(line)).replace(/\r$/, "");
}
