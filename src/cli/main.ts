#!/usr/bin/env bun
import { CommandError, INTERRUPTED_EXIT_CODE } from "../config/usage-error.ts";
import { createProgram } from "./program.ts";
import { printError, writeStdout } from "./terminal/output.ts";

try {
  await createProgram().parseAsync();
} catch (error) {
  if (!(error instanceof CommandError)) throw error;
  printError(error.message);
  // The reader of the output may be what the user interrupts.
  if (error.exitCode !== INTERRUPTED_EXIT_CODE) await writeStdout("").catch(() => {});
  process.exit(error.exitCode);
}
