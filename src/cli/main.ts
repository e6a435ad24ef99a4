#!/usr/bin/env bun
import { createProgram } from "./program.ts";
import { UnavailableError, USAGE_EXIT_CODE, UsageError } from "./usage-error.ts";

try {
  await createProgram().parseAsync();
} catch (error) {
  if (!(error instanceof UsageError || error instanceof UnavailableError)) throw error;
  process.stderr.write(`todo: ${error.message}\n`);
  process.exit(error instanceof UsageError ? USAGE_EXIT_CODE : 1);
}
