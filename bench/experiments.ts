/** What is asked of the product alone: a change among many to-dos, a million of them, and the start. */
import { readFileSync } from "node:fs";
import { type Postgres, startPostgres } from "../test/postgres.ts";
import { type Child, cpuByThread, cpuSpent, memory, resetPeak, start, track } from "./child.ts";
import { readList, slice, store } from "./client.ts";
import { type Experiment, type Finding, finding, quantile, ratios } from "./finding.ts";
import {
  getOne,
  onPostgres,
  onSlowDisk,
  onSqlite,
  post,
  product,
  root,
  type Shot,
  todo,
  transactionEach,
} from "./workloads.ts";

export const experiments: readonly Experiment[] = [
  { name: "one change among many to-dos", size: 100_000, quickSize: 10_000, run: oneChange },
  { name: "many to-dos", size: 1_000_000, quickSize: 50_000, run: manyTodos },
  {
    name: "pairs of slices beside writers, with a slow disk and without",
    size: 7,
    quickSize: 1,
    run: slowDisk,
  },
  { name: "many to-dos on SQLite", size: 1_000_000, quickSize: 50_000, run: manyOnSqlite },
  { name: "rounds of slices on PostgreSQL", size: 7, quickSize: 1, run: replicas },
  { name: "starts", size: 10, quickSize: 3, run: starts },
];

/** One client, one request at a time: a change, the list, the list again. */
async function oneChange(todos: number, folder: string): Promise<Finding[]> {
  const [warmUp, pairs] = [10, 100];
  const child = await start(product, folder);
  try {
    await store(child.port, todos);
    const change: number[] = [];
    const changed: number[] = [];
    const repeated: number[] = [];
    for (let pair = 0; pair < warmUp + pairs; pair += 1) {
      change.push(await setDone(child, 1 + Math.floor(Math.random() * todos), pair % 2 === 0));
      changed.push((await readList(child.port)).ms);
      repeated.push((await readList(child.port)).ms);
    }
    return [
      finding("list after one change / repeated", ratios(changed, repeated).slice(warmUp)),
      finding("list after one change, ms", changed.slice(warmUp)),
      finding("list repeated, ms", repeated.slice(warmUp)),
      finding("the change (PATCH), ms", change.slice(warmUp)),
    ];
  } finally {
    await child.stop();
  }
}

async function setDone(child: Child, id: number, done: boolean): Promise<number> {
  const started = performance.now();
  const response = await fetch(`http://127.0.0.1:${child.port}/api/todos/${id}`, {
    method: "PATCH",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ done }),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`PATCH was answered with ${response.status}`);
  return performance.now() - started;
}

async function manyTodos(todos: number, folder: string): Promise<Finding[]> {
  const child = await start(product, folder);
  try {
    const started = performance.now();
    await store(child.port, todos);
    const loading = (performance.now() - started) / 1_000;
    const { peak } = memory(child.pid);
    await Bun.sleep(3_000);
    const { now } = memory(child.pid);

    const fast = await lists(child, 3, Infinity);
    const slow = await lists(child, 1, 10e6);
    return [
      finding("loading over HTTP, s", [loading]),
      finding("RSS, MB", [now]),
      finding("RSS peak while loading, MB", [peak]),
      { name: "full list to a fast reader adds, MB", figure: Math.max(...fast.added), readings: fast.added },
      finding("full list to a fast reader, ms", fast.ms),
      { name: "full list to a slow reader adds, MB", figure: Math.max(...slow.added), readings: slow.added },
      finding("full list to a slow reader (10 MB/s), ms", slow.ms),
      finding("full list, MB on the wire", fast.megabytes),
      ...(await latencyBesideLists(child, todos)),
    ];
  } finally {
    await child.stop();
  }
}

/** Reads the full list some times, and how far the server's memory rose above where it was just before. */
async function lists(child: Child, times: number, bytesPerSecond: number) {
  const added: number[] = [];
  const ms: number[] = [];
  const megabytes: number[] = [];
  for (let time = 0; time < times; time += 1) {
    resetPeak(child.pid);
    const { now } = memory(child.pid);
    const read = await readList(child.port, bytesPerSecond);
    added.push(Math.max(0, memory(child.pid).peak - now));
    ms.push(read.ms);
    megabytes.push(read.bytes / 1e6);
  }
  return { added, ms, megabytes };
}

/** p99 of 16 clients that get one to-do, alternately alone and while one more reads the full list in a loop. */
async function latencyBesideLists(child: Child, todos: number): Promise<Finding[]> {
  const [pairs, seconds, connections] = [7, 2, 16];
  const shot = { ...getOne, path: `/api/todos/${todos / 2}` };
  const before: number[] = [];
  const beside: number[] = [];
  const listsPerSecond: number[] = [];
  await slice(child, shot, seconds, connections);
  for (let pair = 0; pair < pairs; pair += 1) {
    before.push((await slice(child, shot, seconds, connections)).p99);
    const [{ p99 }, lists] = await whileListing(child.port, () => slice(child, shot, seconds, connections));
    beside.push(p99);
    listsPerSecond.push(lists / seconds);
  }
  return [
    finding("p99 while listing / before", ratios(beside, before)),
    finding("p99 of GET one before, µs", before),
    finding("p99 of GET one while a full list is sent, µs", beside),
    finding("full lists a second meanwhile", listsPerSecond),
  ];
}

/** Does `work` while one client reads full lists, one after the other; gives its result and how many lists there were. */
function whileListing<T>(port: number, work: () => Promise<T>): Promise<[T, number]> {
  let working = true;
  const list = async () => {
    let lists = 0;
    for (; working; lists += 1) await readList(port);
    return lists;
  };
  const worked = work().finally(() => {
    working = false;
  });
  return Promise.all([worked, list()]);
}

async function starts(times: number, folder: string): Promise<Finding[]> {
  const readings: number[] = [];
  for (let time = 0; time < times; time += 1) {
    const child = await start(product, folder, "/livez");
    readings.push(child.startedIn);
    await child.stop();
  }
  return [finding("start to first answer, ms", readings)];
}

/** p99 of 16 clients that get one to-do beside 8 that write, when each fsync takes 20 ms more, and when it does not. */
async function slowDisk(pairs: number, folder: string): Promise<Finding[]> {
  const [seconds, readers, writers, delayMs] = [2, 16, 8, 20];
  const usual = await start(onSlowDisk(0), folder);
  const slow = await start(onSlowDisk(delayMs), folder);
  const measure = async (child: Child) => {
    const [read, written] = await Promise.all([
      slice(child, getOne, seconds, readers),
      slice(child, post, seconds, writers),
    ]);
    return { p99: read.p99, written: written.perSecond };
  };
  try {
    for (const child of [usual, slow]) {
      await store(child.port, 1);
      await measure(child);
    }
    const without: Awaited<ReturnType<typeof measure>>[] = [];
    const withDelay: typeof without = [];
    for (let pair = 0; pair < pairs; pair += 1) {
      without.push(await measure(usual));
      withDelay.push(await measure(slow));
    }
    const p99 = (of: typeof without) => of.map(({ p99 }) => p99);
    return [
      finding("p99 with a slow disk / without", ratios(p99(withDelay), p99(without))),
      finding("p99 of GET one without, µs", p99(without)),
      finding("p99 of GET one with a slow disk, µs", p99(withDelay)),
      finding(
        "to-dos written a second without",
        without.map(({ written }) => written),
      ),
      finding(
        "to-dos written a second with a slow disk",
        withDelay.map(({ written }) => written),
      ),
    ];
  } finally {
    await usual.stop();
    await slow.stop();
  }
}

async function manyOnSqlite(todos: number, folder: string): Promise<Finding[]> {
  const file = `${folder}/many.ndjson`;
  const path = `${folder}/many.db`;
  const lines = Bun.file(file).writer();
  for (let id = 1; id <= todos; id += 1)
    lines.write(`{"id":${id},"title":"buy milk and bread ${id}","done":false}\n`);
  await lines.end();

  const importing = await run([...todo, "import", file, "--store", `sqlite:${path}`]);
  const exporting = await run([...todo, "export", `${folder}/again.ndjson`, "--store", `sqlite:${path}`]);
  const backingUp = await run([...todo, "backup", `${folder}/many.backup`, "--store", `sqlite:${path}`]);
  const started: number[] = [];
  const resident: number[] = [];
  for (let time = 0; time < 5; time += 1) {
    const child = await start(onSqlite(path), folder, `/api/todos/${todos}`);
    started.push(child.startedIn);
    resident.push(memory(child.pid).now);
    await child.stop();
  }
  return [
    finding("imported to-dos a second", [todos / importing]),
    finding("exported to-dos a second", [todos / exporting]),
    finding("back-up, s", [backingUp]),
    finding("start to first answer with them, ms", started),
    finding("RSS after it, MB", resident),
  ];
}

/**
 * Requests a second through one replica and through three, on one PostgreSQL; all of them, the database too, on the
 * servers' core.
 */
async function replicas(rounds: number, folder: string): Promise<Finding[]> {
  const [seconds, connections, count] = [2, 63, 3];
  await using postgres = await startPostgres();
  await pinToServersCore(postgres);
  const url = await postgres.newDatabase();
  const children: Child[] = [];
  try {
    for (let replica = 0; replica < count; replica += 1) children.push(await start(onPostgres(url), folder));
    const each = await start(transactionEach(url), folder);
    const memory = await start(product, folder);
    children.push(each, memory);
    const [first, ...others] = children.slice(0, count);
    if (first === undefined) throw new Error("there is no replica");
    await store(memory.port, 1);

    const replicas = [first, ...others];
    const rate = async (child: Child, shot: Shot) =>
      (await slice(child, shot, seconds, connections)).perSecond;
    /** POSTs a second through some replicas, and where their CPU microseconds go. */
    const write = async (through: readonly Child[], share: number) => {
      const before = await cpuOf(replicas, postgres);
      const slices = await Promise.all(through.map((child) => slice(child, post, seconds, share)));
      const after = await cpuOf(replicas, postgres);
      const requests = slices.reduce((sum, { requests }) => sum + requests, 0);
      return {
        perSecond: slices.reduce((sum, { perSecond }) => sum + perSecond, 0),
        replicas: cpuSpent(before.replicas, after.replicas) / requests,
        database: cpuSpent(before.database, after.database) / requests,
      };
    };
    await write([first], connections);
    const one: Awaited<ReturnType<typeof write>>[] = [];
    const three: typeof one = [];
    const thrice: typeof one = [];
    const alone: number[] = [];
    const read: number[] = [];
    const readMemory: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      one.push(await write([first], connections));
      alone.push(await rate(each, post));
      three.push(await write(replicas, connections / count));
      thrice.push(await write(replicas, connections));
      read.push(await rate(first, getOne));
      readMemory.push(await rate(memory, getOne));
    }
    const rates = (of: typeof one) => of.map(({ perSecond }) => perSecond);
    const costs = (name: string, of: typeof one) => [
      finding(
        `CPU of the replicas for a POST, µs, ${name}`,
        of.map(({ replicas }) => replicas),
      ),
      finding(
        `CPU of the database for a POST, µs, ${name}`,
        of.map(({ database }) => database),
      ),
    ];
    return [
      finding("POST through one replica / a transaction each", ratios(rates(one), alone)),
      finding("POST through three replicas / through one", ratios(rates(three), rates(one))),
      finding("the same, with as many clients for each of the three", ratios(rates(thrice), rates(one))),
      finding("GET one on PostgreSQL / in memory", ratios(read, readMemory)),
      finding("POST a second, one replica", rates(one)),
      ...costs("one replica", one),
      finding("POST a second, a transaction each", alone),
      finding("POST a second, three replicas", rates(three)),
      ...costs("three replicas", three),
      finding("POST a second, three replicas, as many clients each", rates(thrice)),
      ...costs("three replicas, as many clients each", thrice),
      finding("GET one a second, PostgreSQL", read),
      finding("GET one a second, memory", readMemory),
      await eventDelay(first, others, rounds),
    ];
  } finally {
    for (const child of children) await child.stop();
  }
}

/** p99 of the time from sending a POST to one replica until its event is read from another, at 1,000 a second. */
async function eventDelay(writer: Child, [reader]: readonly Child[], rounds: number): Promise<Finding> {
  const [everyMs, atOnce, writes] = [10, 10, 2_000];
  const ended = new AbortController();
  const events = await fetch(`http://127.0.0.1:${reader?.port}/api/events`, { signal: ended.signal });
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
    for (let batch = 0; batch < writes / atOnce; batch += 1) {
      for (let one = 0; one < atOnce; one += 1) answers.push(write(`event ${round}.${batch}.${one}`));
      await Bun.sleep(Math.max(0, started + (batch + 1) * everyMs - performance.now()));
    }
    await Promise.all(answers);
    const deadline = performance.now() + 5_000;
    while (delays.length < writes && performance.now() < deadline) await Bun.sleep(10);
    if (delays.length !== writes) throw new Error(`${delays.length} events of ${writes} writes`);
    p99.push(quantile(delays, 0.99));
    delays.length = 0;
  }
  ended.abort();
  await listening;
  return finding("p99 of an event on another replica at 1,000 writes/s, ms", p99);
}

/** CPU nanoseconds so far, by thread, of the replicas and of the database. */
async function cpuOf(replicas: readonly Child[], postgres: Postgres) {
  const backends = await postgres.query<{ pid: number }>("SELECT pid FROM pg_stat_activity");
  const threadsOf = (processes: readonly { readonly pid: number }[]) =>
    new Map(processes.flatMap(({ pid }) => [...cpuByThread(pid)]));
  return { replicas: threadsOf(replicas), database: threadsOf(backends) };
}

/** The process that all of PostgreSQL's come from; those to come inherit its core. */
async function pinToServersCore(postgres: Postgres): Promise<void> {
  const processes = await postgres.query<{ pid: number }>("SELECT pid FROM pg_stat_activity");
  const [any] = processes;
  const parent = /\) \S (\d+)/.exec(readFileSync(`/proc/${any?.pid}/stat`, "utf8"))?.[1];
  for (const pid of [parent, ...processes.map((one) => one.pid)])
    Bun.spawnSync(["taskset", "-acp", "0", String(pid)]);
}

/** Seconds that a command takes, on the server's core; throws when it fails. */
async function run(command: readonly string[]): Promise<number> {
  const started = performance.now();
  const child = Bun.spawn(["taskset", "-c", "0", ...command], {
    cwd: root,
    stdio: ["ignore", "ignore", "inherit"],
  });
  track(child);
  if ((await child.exited) !== 0) throw new Error(`${command.join(" ")} failed`);
  return (performance.now() - started) / 1_000;
}
