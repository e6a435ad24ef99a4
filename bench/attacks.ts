/** The latency of other clients while 1,000 connections stall, or while 200 guess passwords. */
import { readList, seed } from "./client.ts";
import { type Experiment, experiment, type Measurement, median, medianOf, ratios } from "./measurement.ts";
import { getOne } from "./requests.ts";
import { type ServerProcess, start, track } from "./server-process.ts";
import { product, root } from "./servers.ts";
import { measure } from "./wrk.ts";

/** A hostile client, as a command line that runs on the load's core until it is killed. */
interface Attack {
  readonly name: string;
  readonly command: (port: number) => readonly (string | number)[];
  /** What the same number of well-behaved clients would send in the comparison; nothing without it. */
  readonly baseline?: (port: number, until: AbortSignal) => Promise<void>;
}

interface Size {
  readonly rounds: number;
  /** How often, and for how many seconds, the p99 is measured in a round. */
  readonly readings: number;
  readonly seconds: number;
}

const STALLED = 1_000;
const STALLED_PER_SECOND = 125;
const OTHER_CLIENTS = 16;
const ATTACK_SECONDS = 20;
const SIZES = {
  whole: { rounds: 3, readings: 3, seconds: 2 },
  quick: { rounds: 1, readings: 1, seconds: 1 },
};

const stalling = (...mode: readonly (string | number)[]) => ({
  command: (port: number) => [
    ...["slowhttptest", ...mode, "-c", STALLED, "-r", STALLED_PER_SECOND],
    ...["-l", ATTACK_SECONDS, "-p", 3, "-v", 0, "-u", `http://127.0.0.1:${port}/api/todos`],
  ],
});

const stalls: readonly Attack[] = [
  { name: "slow heads", ...stalling("-H", "-i", 2) },
  { name: "slow bodies", ...stalling("-B", "-i", 2, "-f", "application/json") },
  { name: "ranges", ...stalling("-R") },
  // A client that reads lists costs the others something, stalled or not.
  { name: "slow readers", ...stalling("-X", "-w", 10, "-y", 20, "-n", 5), baseline: readLists },
];

const guessing = (users: number) => ({
  command: (port: number) => [
    ...[`${root}bin/bun`, "test/flood.ts"],
    ...[port, 200, ATTACK_SECONDS * 1_000, users],
  ],
});

const guesses: readonly Attack[] = [
  { name: "200 logins of one user", ...guessing(1) },
  { name: "200 logins of many users", ...guessing(1_000_000) },
];

export const attacks: readonly Experiment[] = [
  experiment("1,000 stalled connections", SIZES, besides(stalls)),
  experiment("200 connections that guess passwords", SIZES, besides(guesses)),
];

function besides(attacks: readonly Attack[]) {
  return async (size: Size, folder: string): Promise<Measurement[]> => {
    const users = `${folder}/users`;
    await Bun.write(users, `admin:${await Bun.password.hash("secret", { algorithm: "bcrypt", cost: 10 })}\n`);
    const server = await start({ ...product, env: { TODO_USERS_FILE: users } }, folder);
    try {
      await seed(server.port, 5_000);
      await p99(server, size);
      const measurements: Measurement[] = [];
      for (const attack of attacks) {
        const before: number[] = [];
        const beside: number[] = [];
        for (let round = 0; round < size.rounds; round += 1) {
          before.push(await p99Before(server, attack, size));
          beside.push(await p99Beside(server, attack, size));
        }
        measurements.push(
          medianOf(`p99 beside ${attack.name} / before`, ratios(beside, before)),
          medianOf(`p99 of GET one before, µs: ${attack.name}`, before),
          medianOf(`p99 of GET one beside them, µs: ${attack.name}`, beside),
        );
      }
      return measurements;
    } finally {
      await server.stop();
    }
  };
}

/** Returns the median of several 99th percentiles, in microseconds. */
async function p99(server: ServerProcess, { readings, seconds }: Size): Promise<number> {
  const results: number[] = [];
  for (let reading = 0; reading < readings; reading += 1)
    results.push((await measure(server, getOne, seconds, OTHER_CLIENTS)).p99);
  return median(results);
}

async function p99Before(server: ServerProcess, { baseline }: Attack, size: Size): Promise<number> {
  const ended = new AbortController();
  const wellBehaved = baseline?.(server.port, ended.signal);
  try {
    return await p99(server, size);
  } finally {
    ended.abort();
    await wellBehaved;
  }
}

/** Measures from one second after the attack's start, and then ends the attack. */
async function p99Beside(server: ServerProcess, { name, command }: Attack, size: Size): Promise<number> {
  const attacker = Bun.spawn(command(server.port).map(String), {
    cwd: root,
    stdio: ["ignore", "ignore", "inherit"],
  });
  track(attacker);
  try {
    await Bun.sleep(1_000);
    const reading = await p99(server, size);
    if (attacker.exitCode !== null) throw new Error(`${name}: the attack ended before it was measured`);
    return reading;
  } finally {
    attacker.kill("SIGKILL");
    await attacker.exited;
    // The server notices that the connections are gone.
    await Bun.sleep(1_000);
  }
}

/** Reads as many lists per second as the slow readers begin, each of them to its end. */
async function readLists(port: number, until: AbortSignal): Promise<void> {
  const reads: Promise<unknown>[] = [];
  const started = performance.now();
  for (let read = 1; !until.aborted; read += 1) {
    reads.push(readList(port));
    await Bun.sleep(Math.max(0, started + (read * 1_000) / STALLED_PER_SECOND - performance.now()));
  }
  await Promise.all(reads);
}
