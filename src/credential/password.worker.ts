import { readlinkSync } from "node:fs";
import { setPriority } from "node:os";
import { errorMessage } from "../error-message.ts";

/** Asks the thread whether a password matches a hash. */
export interface VerifyRequest {
  readonly password: string;
  readonly passwordHash: string;
}

export type VerifyReply =
  | { readonly type: "verified"; readonly matches: boolean }
  | { readonly type: "failed"; readonly reason: string };

declare const self: Worker;

/** Gives the thread about 1/30 of a contended core. */
const NICE_VALUE = 15;

lowerPriority();
self.onmessage = ({ data }: MessageEvent<VerifyRequest>) => self.postMessage(answer(data));

function answer({ password, passwordHash }: VerifyRequest): VerifyReply {
  try {
    return { type: "verified", matches: Bun.password.verifySync(password, passwordHash) };
  } catch (error) {
    return { type: "failed", reason: errorMessage(error) };
  }
}

/** Lowers the priority of this thread. Only Linux has priorities per thread (setpriority(2)). */
function lowerPriority(): void {
  if (process.platform !== "linux") return;
  try {
    setPriority(Number(readlinkSync("/proc/thread-self").split("/").at(-1)), NICE_VALUE);
  } catch {
    // Without /proc, or in a sandbox that forbids it, the thread keeps the normal priority.
  }
}
