/** Compares the competitors of one workload: CPU time in short paired slices, rates under wrk. */
import { seed } from "./client.ts";
import { createLoad, type Load, type Slice } from "./load.ts";
import { getOne, type RequestSpec } from "./requests.ts";
import { type ServerProcess, start } from "./server-process.ts";
import type { ExpectedResponse, Server } from "./servers.ts";
import type { Competitor, Workload } from "./workloads.ts";
import { measure, type WrkResult } from "./wrk.ts";

export interface RunOptions {
  /** How often all servers are restarted: two processes of the same program differ by a few percent. */
  readonly sessions: number;
  /** Pairs of slices for each competitor in each session. */
  readonly pairs: number;
  /** Runs of wrk for each competitor in each session, each of one second. */
  readonly wrkRuns: number;
  /** CPU milliseconds of load before the first slice. */
  readonly warmUpMs: number;
}

/** The readings of one competitor. */
export interface Comparison {
  readonly label: string;
  /** Pairs of slices, by session: one of the first competitor, and one of this one. Empty for the first. */
  readonly sessions: readonly (readonly SlicePair[])[];
  /** All of its slices. */
  readonly slices: readonly Slice[];
  /** Requests per second, for each run of wrk. */
  readonly perSecond: readonly number[];
}

export interface SlicePair {
  readonly first: Slice;
  readonly other: Slice;
}

const SLICE_CPU_MS = 65;
const WRK_SECONDS = 1;
/** A server with this many to-dos is restarted, because the product stores at most 1,000,000 by default. */
const MAX_STORED = 700_000;

/** A running server with its connections. */
interface Participant {
  readonly process: ServerProcess;
  readonly loads: Map<RequestSpec, { readonly load: Load; readonly sliceSize: number }>;
  stored: number;
}

/** @param folder holds the files that the servers read */
export async function compare(
  workload: Workload,
  options: RunOptions,
  folder: string,
): Promise<Comparison[]> {
  const results = workload.competitors.map((competitor) => ({
    competitor,
    label: competitor.label,
    sessions: [] as SlicePair[][],
    slices: [] as Slice[],
    perSecond: [] as number[],
  }));
  const [first, ...others] = results;
  if (first === undefined) throw new Error("a workload needs competitors");

  for (let session = 0; session < options.sessions; session += 1) {
    const participants = new Participants(workload, options.warmUpMs, folder);
    for (const other of others) other.sessions.push([]);
    try {
      await participants.checkResponses();
      for (let pair = 0; pair < options.pairs; pair += 1) {
        for (const other of others) {
          // The order alternates, so that neither of the two always runs after the other.
          const order = pair % 2 === 0 ? [first, other] : [other, first];
          for (const { competitor, slices } of order) slices.push(await participants.slice(competitor));
          const [own, theirs] = [first.slices.at(-1), other.slices.at(-1)];
          if (own !== undefined && theirs !== undefined)
            other.sessions.at(-1)?.push({ first: own, other: theirs });
        }
      }
      for (let run = 0; run < options.wrkRuns; run += 1) {
        for (const { competitor, perSecond } of results) {
          const result = await participants.rate(competitor);
          perSecond.push(result.perSecond);
        }
      }
    } finally {
      await participants.stop();
    }
  }
  return results;
}

/** Returns the CPU microseconds per request over all of these slices, garbage collection included. */
export function cpuPerRequest(slices: readonly Slice[]): number {
  const total = (field: "cpu" | "requests") => slices.reduce((sum, slice) => sum + slice[field], 0);
  return total("cpu") / total("requests");
}

/** Returns how many times as many requests per CPU second the first competitor answers in these pairs. */
export const speedRatio = (pairs: readonly SlicePair[]): number =>
  cpuPerRequest(pairs.map(({ other }) => other)) / cpuPerRequest(pairs.map(({ first }) => first));

/** The servers of a workload, each started when it is first needed. */
class Participants {
  readonly #workload: Workload;
  readonly #warmUpMs: number;
  readonly #folder: string;
  readonly #running = new Map<Server, Participant>();

  constructor(workload: Workload, warmUpMs: number, folder: string) {
    this.#workload = workload;
    this.#warmUpMs = warmUpMs;
    this.#folder = folder;
  }

  /** Sends as many requests as take the server about 65 ms of CPU time. */
  async slice({ server, request }: Competitor): Promise<Slice> {
    const participant = await this.#withRoom(server);
    const { load, sliceSize } = await this.#load(participant, request);
    return this.#count(participant, request, await load.run(sliceSize));
  }

  async rate({ server, request }: Competitor): Promise<WrkResult> {
    const participant = await this.#withRoom(server);
    const result = await measure(participant.process, request, WRK_SECONDS, this.#workload.connections);
    return this.#count(participant, request, result);
  }

  /** Writes the product's response for the servers that repeat it, and throws unless all respond alike. */
  async checkResponses(): Promise<void> {
    const [first, ...others] = this.#workload.competitors;
    const own = (await this.#participant(first.server)).process;
    const expected = await fetchResponse(own.port, first.request);
    const repeated = first.request.method === "GET" ? expected : await fetchResponse(own.port, getOne);
    await Bun.write(`${this.#folder}/response.json`, JSON.stringify(repeated));

    for (const { label, server, request } of others) {
      const response = await fetchResponse((await this.#participant(server)).process.port, request);
      if (request !== first.request) continue;
      const isEqual =
        (request.method !== "GET" || response.body === expected.body) &&
        (!server.equalHeaders.includes(request.method) ||
          Bun.deepEquals(comparable(response), comparable(expected)));
      if (isEqual) continue;
      const [got, wanted] = [response, expected].map((each) => JSON.stringify(each));
      throw new Error(`${label} answers ${request.method} ${request.path} with ${got}, not ${wanted}`);
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#running.keys()].map((server) => this.#end(server)));
  }

  async #participant(server: Server): Promise<Participant> {
    const known = this.#running.get(server);
    if (known !== undefined) return known;
    const participant: Participant = {
      process: await start(server, this.#folder),
      loads: new Map(),
      stored: 0,
    };
    this.#running.set(server, participant);
    if (server.stores) await seed(participant.process.port, this.#workload.todos);
    return participant;
  }

  async #withRoom(server: Server): Promise<Participant> {
    const participant = await this.#participant(server);
    if (participant.stored < MAX_STORED) return participant;
    await this.#end(server);
    return this.#participant(server);
  }

  /** Connects, warms the server up, and finds out how many requests a slice has. */
  async #load(participant: Participant, request: RequestSpec) {
    const known = participant.loads.get(request);
    if (known !== undefined) return known;
    const load = createLoad(participant.process, request, this.#workload.connections);
    let cpu = 0;
    let size = this.#workload.connections;
    while (cpu < this.#warmUpMs * 1_000) {
      const slice = this.#count(participant, request, await load.run(size));
      cpu += slice.cpu;
      // The fastest slice counts, because other programs can only slow a slice down.
      size = Math.max(size, Math.round((SLICE_CPU_MS * 1_000) / cpuPerRequest([slice])));
    }
    const entry = { load, sliceSize: size };
    participant.loads.set(request, entry);
    return entry;
  }

  #count<Result extends { readonly requests: number }>(
    participant: Participant,
    request: RequestSpec,
    result: Result,
  ): Result {
    if (request.method === "POST") participant.stored += result.requests;
    return result;
  }

  async #end(server: Server): Promise<void> {
    const participant = this.#running.get(server);
    if (participant === undefined) return;
    this.#running.delete(server);
    for (const { load } of participant.loads.values()) load.close();
    await participant.process.stop();
  }
}

/** These headers are a runtime's own. */
const RUNTIME_HEADERS = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "server",
  "transfer-encoding",
]);

async function fetchResponse(
  port: number,
  { method, path, headers, body, status }: RequestSpec,
): Promise<ExpectedResponse> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers, body: body ?? null });
  const text = await response.text();
  if (response.status !== status)
    throw new Error(`${method} ${path} was answered with ${response.status} ${text}`);
  return { headers: [...response.headers].filter(([name]) => !RUNTIME_HEADERS.has(name)), body: text };
}

/** Headers whose values differ from server to server. */
const DIFFERENT_VALUES: readonly string[] = ["etag", "location", "todo-position"];

const comparable = ({ headers }: ExpectedResponse) =>
  headers.map(([name, value]) => [name, DIFFERENT_VALUES.includes(name) ? "" : value]).toSorted();
