import { setTimeout as sleep } from "node:timers/promises";

const PATIENCE_MS = 60_000;

/** Waits until a condition is true; rejects after a minute with what it waited for. */
export async function until(isTrue: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(`waited ${PATIENCE_MS / 1000} s until ${what}`);
    await sleep(2);
  }
}
