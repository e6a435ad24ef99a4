/** The servers as child processes: started on core 0, watched through /proc, stopped by pid. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { root, type Server } from "./workloads.ts";

export interface Child {
  readonly pid: number;
  readonly port: number;
  /** Milliseconds from the spawn to the first 200. */
  readonly startedIn: number;
  stop(): Promise<void>;
}

const serverCore = "0";
const readyWithin = 15_000;
const running = new Set<Bun.Subprocess>();

/**
 * Starts a server and waits until `ready` answers 200. `folder` holds what its command refers to, and its stderr.
 * Throws with the end of its stderr if it ends first or stays silent.
 */
export async function start(server: Server, folder: string, ready = server.ready): Promise<Child> {
  const port = freePort();
  const fill = (text: string) =>
    text
      .replace("$PORT", String(port))
      .replace("$CLIENTS", `${folder}/clients`)
      .replace("$REPLY", `${folder}/reply.json`)
      .replace("$STORE", `${folder}/${port}.db`);
  const errors = `${folder}/${port}.stderr`;
  const { PATH = "", HOME = "" } = process.env;

  const spawned = performance.now();
  const subprocess = Bun.spawn(["taskset", "-c", serverCore, ...server.command.map(fill)], {
    cwd: root,
    env: { PATH, HOME, ...Object.fromEntries(Object.entries(server.env).map(([k, v]) => [k, fill(v)])) },
    stdio: ["ignore", "ignore", Bun.file(errors)],
  });
  track(subprocess);
  const stop = () => end(subprocess);

  while (!(await answers(port, ready))) {
    const silent = performance.now() - spawned > readyWithin;
    if (silent || subprocess.exitCode !== null) {
      await stop();
      const outcome = silent ? "does not answer" : `ended with ${subprocess.exitCode}`;
      throw new Error(`${server.name} ${outcome}: ${readFileSync(errors, "utf8").slice(-2_000)}`);
    }
    await Bun.sleep(1);
  }
  return { pid: subprocess.pid, port, startedIn: performance.now() - spawned, stop };
}

/** Makes `stopAll` stop this process too, as long as it runs. */
export function track(child: Bun.Subprocess): void {
  running.add(child);
  child.exited.finally(() => running.delete(child));
}

export async function stopAll(): Promise<void> {
  await Promise.all([...running].map(end));
}

async function end(child: Bun.Subprocess): Promise<void> {
  const patience = setTimeout(() => child.kill("SIGKILL"), 2_000);
  child.kill("SIGTERM");
  await child.exited;
  clearTimeout(patience);
}

async function answers(port: number, path: string): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.timeout(2_000) });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}

function freePort(): number {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  listener.stop(true);
  return listener.port;
}

/** CPU nanoseconds so far of each thread of a process. */
export function cpuByThread(pid: number): Map<string, number> {
  const threads = new Map<string, number>();
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ran = ""] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ");
      threads.set(thread, Number(ran));
    } catch {
      // The thread ended since the folder was read.
    }
  }
  return threads;
}

/** CPU microseconds between two readings; a thread that ended in between counts as nothing, not below it. */
export function cpuSpent(before: Map<string, number>, after: Map<string, number>): number {
  let spent = 0;
  for (const [thread, ran] of after) spent += ran - (before.get(thread) ?? 0);
  return spent / 1_000;
}

/** Resident memory now and its peak since the start or the last `resetPeak`, in MB (10^6 bytes). */
export function memory(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const megabytes = (field: string) =>
    (Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1_024) / 1e6;
  return { now: megabytes("VmRSS"), peak: megabytes("VmHWM") };
}

export function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}
