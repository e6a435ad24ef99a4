import { readdir } from "node:fs/promises";

/** Returns how many files and sockets a process has open, from Linux's /proc. */
export async function openDescriptors(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}
