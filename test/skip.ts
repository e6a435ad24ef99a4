import { existsSync } from "node:fs";

/** Returns whether to skip tests for a reason, which it prints; with `undefined` nothing is skipped. */
export function skipFor(reason: string | undefined): boolean {
  if (reason === undefined) return false;
  process.stderr.write(`skipped: ${reason}\n`);
  return true;
}

export function whyNoFile(path: string): string | undefined {
  return existsSync(path) ? undefined : `${path} does not exist`;
}
