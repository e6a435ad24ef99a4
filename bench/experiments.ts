/** What is measured of the product alone: one change among many to-dos, a million of them, its stores, its start. */
import { readFileSync } from "node:fs";
import { type Postgres, startPostgres } from "../test/postgres.ts";
import { readList, seed } from "./client.ts";
import {
  type Experiment,
  experiment,
  type Measurement,
  maximumOf,
  medianOf,
  quantile,
  ratios,
} from "./measurement.ts";
import { getOne, post, type RequestSpec } from "./requests.ts";
import { memory, resetPeak, type ServerProcess, start, track } from "./server-process.ts";
import {
  onPostgres,
  onSlowDisk,
  onSqlite,
  product,
  root,
  type Server,
  todo,
  transactionEach,
} from "./servers.ts";
import { measure } from "./wrk.ts";

export const experiments: readonly Experiment[] = [
  experiment(
    "One change in a long list",
    { whole: { todos: 100_000, pairs: 100 }, quick: { todos: 10_000, pairs: 10 } },
    oneChange,
  ),
  experiment(
    "Many to-dos",
    { whole: { todos: 1_000_000, pairs: 7, seconds: 2 }, quick: { todos: 50_000, pairs: 1, seconds: 1 } },
    manyTodos,
  ),
  experiment(
    "SQLite: readers beside writers, with a slow disk and without",
    { whole: { pairs: 7, seconds: 2 }, quick: { pairs: 1, seconds: 1 } },
    slowDisk,
  ),
  experiment(
    "SQLite: many to-dos",
    { whole: { todos: 1_000_000, starts: 5 }, quick: { todos: 50_000, starts: 2 } },
    manyOnSqlite,
  ),
  experiment(
    "PostgreSQL: several replicas",
    { whole: { rounds: 7, seconds: 2 }, quick: { rounds: 1, seconds: 1 } },
    replicas,
  ),
  experiment("Start", { whole: 10, quick: 3 }, starts),
];

interface Pairs {
  readonly pairs: number;
  readonly seconds: number;
}

/** Measures one client that changes a to-do, gets the list, and gets the list again. */
async function oneChange(
  { todos, pairs }: { readonly todos: number; readonly pairs: number },
  folder: string,
): Promise<Measurement[]> {
  const warmUp = 10;
  const server = await start(product, folder);
  try {
    await seed(server.port, todos);
    const change: number[] = [];
    const changed: number[] = [];
    const repeated: number[] = [];
    for (let pair = 0; pair < warmUp + pairs; pair += 1) {
      change.push(await setDone(server, 1 + Math.floor(Math.random() * todos), pair % 2 === 0));
      changed.push((await readList(server.port)).ms);
      repeated.push((await readList(server.port)).ms);
    }
    return [
      medianOf("to-dos", [todos]),
      medianOf("list after one change / repeated", ratios(changed, repeated).slice(warmUp)),
      medianOf("list after one change, ms", changed.slice(warmUp)),
      medianOf("list repeated, ms", repeated.slice(warmUp)),
      medianOf("the change (PATCH), ms", change.slice(warmUp)),
    ];
  } finally {
    await server.stop();
  }
}

async function setDone(server: ServerProcess, id: number, done: boolean): Promise<number> {
  const started = performance.now();
  const response = await fetch(`http://127.0.0.1:${server.port}/api/todos/${id}`, {
    method: "PATCH",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ done }),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`PATCH was answered with ${response.status}`);
  return performance.now() - started;
}

async function manyTodos(
  { todos, ...pairs }: Pairs & { readonly todos: number },
  folder: string,
): Promise<Measurement[]> {
  const server = await start(product, folder);
  try {
    const started = performance.now();
    await seed(server.port, todos);
    const loading = (performance.now() - started) / 1_000;
    const { peak } = memory(server.pid);
    await Bun.sleep(3_000);
    const { now } = memory(server.pid);

    const fast = await lists(server, 3, Infinity);
    const slow = await lists(server, 1, 10e6);
    return [
      medianOf("to-dos", [todos]),
      medianOf("POST of all of them, s", [loading]),
      medianOf("RSS, MB", [now]),
      medianOf("RSS peak during POST, MB", [peak]),
      maximumOf("full list to a fast client adds, MB", fast.added),
      medianOf("full list to a fast client, ms", fast.ms),
      maximumOf("full list to a slow client adds, MB", slow.added),
      medianOf("full list to a slow client (10 MB/s), ms", slow.ms),
      medianOf("full list, MB on the wire", fast.megabytes),
      ...(await latencyBesideLists(server, todos, pairs)),
    ];
  } finally {
    await server.stop();
  }
}

/** Reads the full list a number of times, and how far the server's peak memory is above the memory before it. */
async function lists(server: ServerProcess, times: number, bytesPerSecond: number) {
  const added: number[] = [];
  const ms: number[] = [];
  const megabytes: number[] = [];
  for (let time = 0; time < times; time += 1) {
    resetPeak(server.pid);
    const { now } = memory(server.pid);
    const read = await readList(server.port, bytesPerSecond);
    added.push(Math.max(0, memory(server.pid).peak - now));
    ms.push(read.ms);
    megabytes.push(read.bytes / 1e6);
  }
  return { added, ms, megabytes };
}

/** Measures the p99 of 16 clients that get one to-do: alternately alone, and while one more reads full lists. */
async function latencyBesideLists(
  server: ServerProcess,
  todos: number,
  { pairs, seconds }: Pairs,
): Promise<Measurement[]> {
  const connections = 16;
  const request = { ...getOne, path: `/api/todos/${todos / 2}` };
  const before: number[] = [];
  const beside: number[] = [];
  const listsPerSecond: number[] = [];
  await measure(server, request, seconds, connections);
  for (let pair = 0; pair < pairs; pair += 1) {
    before.push((await measure(server, request, seconds, connections)).p99);
    const [{ p99 }, lists] = await whileListing(server.port, () =>
      measure(server, request, seconds, connections),
    );
    beside.push(p99);
    listsPerSecond.push(lists / seconds);
  }
  return [
    medianOf("p99 while a full list is sent / before", ratios(beside, before)),
    medianOf("p99 of GET one before, µs", before),
    medianOf("p99 of GET one while a full list is sent, µs", beside),
    medianOf("full lists per second meanwhile", listsPerSecond),
  ];
}

/** Does `work` while one client reads one full list after another. Returns its result and the number of lists. */
function whileListing<Result>(port: number, work: () => Promise<Result>): Promise<[Result, number]> {
  let isWorking = true;
  const list = async () => {
    let lists = 0;
    for (; isWorking; lists += 1) await readList(port);
    return lists;
  };
  const worked = work().finally(() => {
    isWorking = false;
  });
  return Promise.all([worked, list()]);
}

async function starts(times: number, folder: string): Promise<Measurement[]> {
  const readings: number[] = [];
  for (let time = 0; time < times; time += 1) {
    const server = await start(product, folder, "/livez");
    readings.push(server.startMs);
    await server.stop();
  }
  return [medianOf("start to first response, ms", readings)];
}

/** Measures the p99 of 16 clients that get one to-do beside 8 that write, with and without 20 ms more per fsync. */
async function slowDisk({ pairs, seconds }: Pairs, folder: string): Promise<Measurement[]> {
  const [readers, writers, delayMs] = [16, 8, 20];
  const usual = await start(onSlowDisk(0), folder);
  const slow = await start(onSlowDisk(delayMs), folder);
  const measureBoth = async (server: ServerProcess) => {
    const [read, written] = await Promise.all([
      measure(server, getOne, seconds, readers),
      measure(server, post, seconds, writers),
    ]);
    return { p99: read.p99, written: written.perSecond };
  };
  try {
    for (const server of [usual, slow]) {
      await seed(server.port, 1);
      await measureBoth(server);
    }
    const without: Awaited<ReturnType<typeof measureBoth>>[] = [];
    const withDelay: typeof without = [];
    for (let pair = 0; pair < pairs; pair += 1) {
      without.push(await measureBoth(usual));
      withDelay.push(await measureBoth(slow));
    }
    const p99 = (results: typeof without) => results.map(({ p99 }) => p99);
    const written = (results: typeof without) => results.map(({ written }) => written);
    return [
      medianOf("p99 with a slow disk / without", ratios(p99(withDelay), p99(without))),
      medianOf("p99 of GET one without, µs", p99(without)),
      medianOf("p99 of GET one with a slow disk, µs", p99(withDelay)),
      medianOf("to-dos written per second without", written(without)),
      medianOf("to-dos written per second with a slow disk", written(withDelay)),
    ];
  } finally {
    await usual.stop();
    await slow.stop();
  }
}

async function manyOnSqlite(
  { todos, starts }: { readonly todos: number; readonly starts: number },
  folder: string,
): Promise<Measurement[]> {
  const file = `${folder}/many.ndjson`;
  const path = `${folder}/many.db`;
  const lines = Bun.file(file).writer();
  for (let id = 1; id <= todos; id += 1)
    lines.write(`{"id":${id},"title":"buy milk and bread ${id}","done":false}\n`);
  await lines.end();

  const importing = await run([todo, "import", file, "--store", `sqlite:${path}`]);
  const exporting = await run([todo, "export", `${folder}/again.ndjson`, "--store", `sqlite:${path}`]);
  const backingUp = await run([todo, "backup", `${folder}/many.backup`, "--store", `sqlite:${path}`]);
  const started: number[] = [];
  const resident: number[] = [];
  for (let time = 0; time < starts; time += 1) {
    const server = await start(onSqlite(path), folder, `/api/todos/${todos}`);
    started.push(server.startMs);
    resident.push(memory(server.pid).now);
    await server.stop();
  }
  return [
    medianOf("to-dos", [todos]),
    medianOf("to-dos imported per second", [todos / importing]),
    medianOf("to-dos exported per second", [todos / exporting]),
    medianOf("backup, s", [backingUp]),
    medianOf("start to first response with them, ms", started),
    medianOf("RSS after the start, MB", resident),
  ];
}

/** Measures requests per second through one replica, and how fast another shows its writes. All run on the servers' core. */
async function replicas(
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number },
  folder: string,
): Promise<Measurement[]> {
  const connections = 63;
  await using postgres = await startPostgres();
  await pinToServerCore(postgres);
  const url = await postgres.newDatabase();
  const servers: ServerProcess[] = [];
  const startOne = async (server: Server) => {
    const started = await start(server, folder);
    servers.push(started);
    return started;
  };
  const rate = async (server: ServerProcess, request: RequestSpec) =>
    (await measure(server, request, seconds, connections)).perSecond;
  try {
    const replica = await startOne(onPostgres(url));
    const other = await startOne(onPostgres(url));
    const each = await startOne(transactionEach(url));
    const memory = await startOne(product);
    await seed(memory.port, 1);
    await rate(replica, post);
    const [written, alone, read, readMemory]: [number[], number[], number[], number[]] = [[], [], [], []];
    for (let round = 0; round < rounds; round += 1) {
      written.push(await rate(replica, post));
      alone.push(await rate(each, post));
      read.push(await rate(replica, getOne));
      readMemory.push(await rate(memory, getOne));
    }
    return [
      medianOf("POST through one replica / one transaction per request", ratios(written, alone)),
      medianOf("GET one on PostgreSQL / in memory", ratios(read, readMemory)),
      medianOf("POSTs per second, one transaction per request", alone),
      medianOf("POSTs per second, one replica", written),
      medianOf("GETs of one per second, PostgreSQL", read),
      medianOf("GETs of one per second, memory", readMemory),
      await eventDelay(replica, other, rounds),
    ];
  } finally {
    for (const server of servers) await server.stop();
  }
}

/** Measures the p99 from sending a POST to one replica until another streams its event, at 1,000 per second. */
async function eventDelay(
  writer: ServerProcess,
  reader: ServerProcess,
  rounds: number,
): Promise<Measurement> {
  const [intervalMs, batchSize, writes] = [10, 10, 2_000];
  const ended = new AbortController();
  const events = await fetch(`http://127.0.0.1:${reader.port}/api/events`, { signal: ended.signal });
  const sent = new Map<string, number>();
  const delays: number[] = [];
  const listen = async () => {
    const decoder = new TextDecoder();
    let text = "";
    for await (const chunk of events.body ?? []) {
      const now = performance.now();
      const lines = (text + decoder.decode(chunk, { stream: true })).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        const began = sent.get(/"title":"([^"]+)"/.exec(line)?.[1] ?? "");
        if (began !== undefined) delays.push(now - began);
      }
    }
  };
  const listening = listen().catch((error) => {
    if (!ended.signal.aborted) throw error;
  });
  const write = async (title: string) => {
    sent.set(title, performance.now());
    const response = await fetch(`http://127.0.0.1:${writer.port}${post.path}`, {
      method: "POST",
      headers: post.headers,
      body: JSON.stringify({ title }),
    });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`POST was answered with ${response.status}`);
  };

  const p99: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const answers: Promise<void>[] = [];
    const started = performance.now();
    for (let batch = 0; batch < writes / batchSize; batch += 1) {
      for (let one = 0; one < batchSize; one += 1) answers.push(write(`event ${round}.${batch}.${one}`));
      await Bun.sleep(Math.max(0, started + (batch + 1) * intervalMs - performance.now()));
    }
    await Promise.all(answers);
    const deadline = performance.now() + 5_000;
    while (delays.length < writes && performance.now() < deadline) await Bun.sleep(10);
    if (delays.length !== writes) throw new Error(`${delays.length} events arrived for ${writes} writes`);
    p99.push(quantile(delays, 0.99));
    delays.length = 0;
  }
  ended.abort();
  await listening;
  return medianOf("p99 of an event on another replica at 1,000 writes per second, ms", p99);
}

/** Pins PostgreSQL's parent process and its children. Later children inherit the core. */
async function pinToServerCore(postgres: Postgres): Promise<void> {
  const processes = await postgres.query<{ pid: number }>("SELECT pid FROM pg_stat_activity");
  const [child] = processes;
  const parent = /\) \S (\d+)/.exec(readFileSync(`/proc/${child?.pid}/stat`, "utf8"))?.[1];
  for (const pid of [parent, ...processes.map(({ pid }) => pid)])
    Bun.spawnSync(["taskset", "-acp", "0", String(pid)]);
}

/** Runs a command on the servers' core and returns the seconds that it took. Throws if it fails. */
async function run(command: readonly string[]): Promise<number> {
  const started = performance.now();
  const subprocess = Bun.spawn(["taskset", "-c", "0", ...command], {
    cwd: root,
    stdio: ["ignore", "ignore", "inherit"],
  });
  track(subprocess);
  if ((await subprocess.exited) !== 0) throw new Error(`${command.join(" ")} failed`);
  return (performance.now() - started) / 1_000;
}
