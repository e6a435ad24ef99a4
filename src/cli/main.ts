#!/usr/bin/env bun
import { INTERRUPTED_EXIT_CODE } from "../config/usage-error.ts";
import { bypassProxiesOnLoopback } from "../proxy-variables.ts";
import { runProgram } from "./program.ts";
import { writeStdout } from "./terminal/output.ts";

bypassProxiesOnLoopback(process.env);
await runProgram(process.argv.slice(2), process);
// Without an exit code, a server runs on.
if (process.exitCode !== undefined) {
  // The reader of the output may be what the user interrupts.
  if (process.exitCode !== INTERRUPTED_EXIT_CODE) await writeStdout(process, "").catch(() => {});
  process.exit();
}
