import { readFile } from "node:fs/promises";

/** Returns the resident memory of a process in MiB, from Linux's /proc. */
export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
}
