import { existsSync } from "node:fs";

/** Returns whether to skip tests for a reason, which it prints; with `undefined` nothing is skipped. */
export function skipFor(reason: string | undefined): boolean {
  if (reason === undefined) return false;
  process.stderr.write(`skipped: ${reason}\n`);
  return true;
}

/** Returns why tests that need a file of the system cannot run; `undefined` where it exists. */
export function whyNoFile(path: string): string | undefined {
  return existsSync(path) ? undefined : `${path} does not exist`;
}
