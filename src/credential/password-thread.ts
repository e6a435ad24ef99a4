import { readlinkSync } from "node:fs";
import { setPriority } from "node:os";

/** What the thread is asked: whether a password is the one that was hashed. */
export interface VerifyRequest {
  readonly password: string;
  readonly passwordHash: string;
}

export type VerifyReply =
  | { readonly type: "verified"; readonly matches: boolean }
  | { readonly type: "failed"; readonly reason: string };

declare const self: Worker;

/** Of thirty parts of a core that others want too, about one. */
const BEHIND_OTHERS = 15;

standBack();
self.onmessage = ({ data }: MessageEvent<VerifyRequest>) => self.postMessage(answer(data));

function answer({ password, passwordHash }: VerifyRequest): VerifyReply {
  try {
    return { type: "verified", matches: Bun.password.verifySync(password, passwordHash) };
  } catch (error) {
    return { type: "failed", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** Linux has a priority for each thread (setpriority(2)); elsewhere it would be the whole process's. */
function standBack(): void {
  if (process.platform !== "linux") return;
  try {
    setPriority(Number(readlinkSync("/proc/thread-self").split("/").at(-1)), BEHIND_OTHERS);
  } catch {
    // No /proc, or a sandbox that forbids it: passwords are verified all the same, beside the others.
  }
}
