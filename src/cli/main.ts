#!/usr/bin/env bun
import { StoreUnavailableError } from "../storage/store.ts";
import { createProgram } from "./program.ts";
import { USAGE_EXIT_CODE, UsageError } from "./usage-error.ts";

try {
  await createProgram().parseAsync();
} catch (error) {
  if (!(error instanceof UsageError || error instanceof StoreUnavailableError)) throw error;
  process.stderr.write(`todo: ${error.message}\n`);
  process.exit(error instanceof UsageError ? USAGE_EXIT_CODE : 1);
}
