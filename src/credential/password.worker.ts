import { readlinkSync } from "node:fs";
import { setPriority } from "node:os";
import { serveRequests } from "../worker-thread.ts";

/** Asks the thread whether a password matches a hash. */
export interface VerifyRequest {
  readonly password: string;
  readonly passwordHash: string;
}

/** Gives the thread about 1/30 of a contended core. */
const NICE_VALUE = 15;

lowerPriority();
serveRequests(({ password, passwordHash }: VerifyRequest) => Bun.password.verifySync(password, passwordHash));

/** Lowers the priority of this thread. Only Linux has priorities per thread (setpriority(2)). */
function lowerPriority(): void {
  if (process.platform !== "linux") return;
  try {
    setPriority(Number(readlinkSync("/proc/thread-self").split("/").at(-1)), NICE_VALUE);
  } catch {
    // Without /proc, or in a sandbox that forbids it, the thread keeps the normal priority.
  }
}
