#!/usr/bin/env bun
import { printError, writeStdout } from "./output.ts";
import { createProgram } from "./program.ts";
import { CommandError, INTERRUPTED_EXIT_CODE } from "./usage-error.ts";

try {
  await createProgram().parseAsync();
} catch (error) {
  if (!(error instanceof CommandError)) throw error;
  printError(error.message);
  // The reader of the output may be what the user interrupts.
  if (error.exitCode !== INTERRUPTED_EXIT_CODE) await writeStdout("").catch(() => {});
  process.exit(error.exitCode);
}
