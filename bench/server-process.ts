/** Starts servers on core 0, reads their CPU time and memory from /proc, and stops them. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { root, type Server } from "./servers.ts";

export interface ServerProcess {
  readonly pid: number;
  readonly port: number;
  /** Milliseconds from the spawn to the first 200. */
  readonly startMs: number;
  stop(): Promise<void>;
}

const SERVER_CORE = "0";
const READY_TIMEOUT_MS = 15_000;
const KILL_AFTER_MS = 2_000;
const running = new Set<Bun.Subprocess>();

/**
 * Starts a server and waits until `readyPath` answers 200.
 * @param folder holds the files that the command refers to, and the server's stderr
 * @throws with the end of its stderr, if the server exits or does not answer within 15 s
 */
export async function start(
  server: Server,
  folder: string,
  readyPath = server.readyPath,
): Promise<ServerProcess> {
  const port = freePort();
  const fill = (text: string) =>
    text
      .replace("$PORT", String(port))
      .replace("$CLIENTS", `${folder}/clients`)
      .replace("$RESPONSE", `${folder}/response.json`)
      .replace("$CONFIG", `${folder}/${port}.conf`)
      .replace("$STORE", `${folder}/${port}.db`)
      .replace("$GO", `${folder}/go-peer`);
  if (server.config !== undefined)
    await Bun.write(`${folder}/${port}.conf`, await server.config(port, folder));
  const stderr = `${folder}/${port}.stderr`;
  const { PATH = "", HOME = "" } = process.env;

  const spawned = performance.now();
  const subprocess = Bun.spawn(["taskset", "-c", SERVER_CORE, ...server.command.map(fill)], {
    cwd: server.cwd ?? root,
    env: {
      PATH,
      HOME,
      ...Object.fromEntries(Object.entries(server.env).map(([name, value]) => [name, fill(value)])),
    },
    stdio: ["ignore", "ignore", Bun.file(stderr)],
  });
  track(subprocess);
  const stop = () => end(subprocess);

  while (!(await answers(port, readyPath))) {
    const timedOut = performance.now() - spawned > READY_TIMEOUT_MS;
    if (timedOut || subprocess.exitCode !== null) {
      await stop();
      const outcome = timedOut ? "does not answer" : `exited with code ${subprocess.exitCode}`;
      throw new Error(`${server.name} ${outcome}: ${readFileSync(stderr, "utf8").slice(-2_000)}`);
    }
    await Bun.sleep(1);
  }
  return { pid: subprocess.pid, port, startMs: performance.now() - spawned, stop };
}

/** Makes `stopAll` stop this process too, as long as it runs. */
export function track(subprocess: Bun.Subprocess): void {
  running.add(subprocess);
  subprocess.exited.finally(() => running.delete(subprocess));
}

export async function stopAll(): Promise<void> {
  await Promise.all([...running].map(end));
}

async function end(subprocess: Bun.Subprocess): Promise<void> {
  const timer = setTimeout(() => subprocess.kill("SIGKILL"), KILL_AFTER_MS);
  subprocess.kill("SIGTERM");
  await subprocess.exited;
  clearTimeout(timer);
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

/** Returns the CPU nanoseconds that each thread of a process has used so far. */
export function cpuByThread(pid: number): Map<string, number> {
  const threads = new Map<string, number>();
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [used = ""] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ");
      threads.set(thread, Number(used));
    } catch {
      // The thread ended after the folder was read.
    }
  }
  return threads;
}

/** Returns the CPU microseconds between two readings. A thread that ended in between counts as zero. */
export function cpuSpent(before: Map<string, number>, after: Map<string, number>): number {
  let spent = 0;
  for (const [thread, used] of after) spent += used - (before.get(thread) ?? 0);
  return spent / 1_000;
}

/** Returns resident memory now, and its peak since the start or the last `resetPeak`, in MB (10^6 bytes). */
export function memory(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const megabytes = (field: string) =>
    (Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1_024) / 1e6;
  return { now: megabytes("VmRSS"), peak: megabytes("VmHWM") };
}

export function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}
