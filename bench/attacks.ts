/** What it costs everybody else when somebody stalls a thousand connections, or guesses passwords. */
import { type Child, start, track } from "./child.ts";
import { readList, slice, store } from "./client.ts";
import { type Experiment, type Finding, finding, median, ratios } from "./finding.ts";
import { getOne, product, root } from "./workloads.ts";

/** A client that does harm, as a command line on the load's core, where it runs until it is over or killed. */
interface Attack {
  readonly name: string;
  readonly command: (port: number) => readonly (string | number)[];
  /** What as many well-behaved clients would ask for; without it, the others are compared with themselves alone. */
  readonly baseline?: (port: number, until: AbortSignal) => Promise<void>;
}

const [stalled, stalledASecond] = [1_000, 125];
const [others, seconds, times] = [16, 2, 3];

const stalling = (...mode: readonly (string | number)[]) => ({
  command: (port: number) => [
    ...["slowhttptest", ...mode, "-c", stalled, "-r", stalledASecond, "-l", 20, "-p", 3, "-v", 0],
    ...["-u", `http://127.0.0.1:${port}/api/todos`],
  ],
});

const stalls: readonly Attack[] = [
  { name: "slow heads", ...stalling("-H", "-i", 2) },
  { name: "slow bodies", ...stalling("-B", "-i", 2, "-f", "application/json") },
  { name: "ranges", ...stalling("-R") },
  // Whoever reads a list costs the others something, stalled or not.
  { name: "slow readers", ...stalling("-X", "-w", 10, "-y", 20, "-n", 5), baseline: readOn },
];

const guessing = (users: number) => ({
  command: (port: number) => [process.execPath, "--no-env-file", "test/flood.ts", port, 200, 12_000, users],
});

const guesses: readonly Attack[] = [
  { name: "200 logins of one user", ...guessing(1) },
  { name: "200 logins of ever new users", ...guessing(1_000_000) },
];

export const attacks: readonly Experiment[] = [
  { name: "rounds of 1,000 connections that stall", size: 3, quickSize: 1, run: beside(stalls) },
  { name: "rounds of 200 connections that guess passwords", size: 3, quickSize: 1, run: beside(guesses) },
];

function beside(attacks: readonly Attack[]): Experiment["run"] {
  return async (rounds, folder) => {
    const users = `${folder}/users`;
    await Bun.write(users, `admin:${await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 10 })}\n`);
    const child = await start({ ...product, env: { TODO_USERS_FILE: users } }, folder);
    try {
      await store(child.port, 5_000);
      await p99(child);
      const findings: Finding[] = [];
      for (const attack of attacks) {
        const before: number[] = [];
        const attacked: number[] = [];
        for (let round = 0; round < rounds; round += 1) {
          before.push(await p99WithoutAttack(child, attack));
          attacked.push(await p99Attacked(child, attack));
        }
        findings.push(
          finding(`p99 beside ${attack.name} / before`, ratios(attacked, before)),
          finding(`p99 of GET one before, µs: ${attack.name}`, before),
          finding(`p99 of GET one beside them, µs: ${attack.name}`, attacked),
        );
      }
      return findings;
    } finally {
      await child.stop();
    }
  };
}

/** Microseconds: the median of the 99th percentiles of some slices. */
async function p99(child: Child): Promise<number> {
  const slices: number[] = [];
  for (let time = 0; time < times; time += 1) slices.push((await slice(child, getOne, seconds, others)).p99);
  return median(slices);
}

async function p99WithoutAttack(child: Child, { baseline }: Attack): Promise<number> {
  const ended = new AbortController();
  const wellBehaved = baseline?.(child.port, ended.signal);
  try {
    return await p99(child);
  } finally {
    ended.abort();
    await wellBehaved;
  }
}

/** From the second second of the attack to the seventh; then waits for its end. */
async function p99Attacked(child: Child, { name, command }: Attack): Promise<number> {
  const attacker = Bun.spawn(command(child.port).map(String), {
    cwd: root,
    stdio: ["ignore", "ignore", "inherit"],
  });
  track(attacker);
  await Bun.sleep(1_000);
  const reading = await p99(child);
  if (attacker.exitCode !== null) throw new Error(`${name} ended before they were measured`);
  await attacker.exited;
  return reading;
}

/** As many lists a second as the slow readers begin, each read to its end. */
async function readOn(port: number, until: AbortSignal): Promise<void> {
  const reads: Promise<unknown>[] = [];
  const started = performance.now();
  for (let read = 1; !until.aborted; read += 1) {
    reads.push(readList(port));
    await Bun.sleep(Math.max(0, started + (read * 1_000) / stalledASecond - performance.now()));
  }
  await Promise.all(reads);
}
