import { test } from "bun:test";

const LIMIT_MS = 300_000;

/** Returns a function that adds tests, each of which needs those before it. After a failure, the rest fail at once. */
export function inOrder(): (name: string, run: () => Promise<void>) => void {
  let hasFailed = false;
  return (name, run) =>
    test(
      name,
      async () => {
        if (hasFailed) throw new Error("an earlier test has failed");
        hasFailed = true;
        await run();
        hasFailed = false;
      },
      LIMIT_MS,
    );
}
