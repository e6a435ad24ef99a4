/** One workload over its contestants: short slices, interleaved, the order turned round in every other round. */
import { type Child, start } from "./child.ts";
import { type Slice, slice, store } from "./client.ts";
import {
  bare,
  type Contestant,
  getOne,
  product,
  type Server,
  type Shot,
  type Workload,
} from "./workloads.ts";

/** What came out for one contestant, a number a round. */
export interface Standing {
  readonly label: string;
  readonly perSecond: readonly number[];
  readonly cpu: readonly number[];
  readonly core: readonly number[];
  /** The product's speed over this contestant's in the same round, by CPU a request and by requests a second. */
  readonly byCpu: readonly number[];
  readonly byRate: readonly number[];
}

export interface Pace {
  readonly rounds: number;
  readonly seconds: number;
}

const connections = 64;
/** A server that stored this many is started anew before its next slice: the product holds 1,000,000 by default. */
const nearlyFull = 700_000;

interface Entrant {
  readonly child: Child;
  stored: number;
}

/** `folder` is where the servers find their files, and where the bare handler's reply is written. */
export async function compare(workload: Workload, pace: Pace, folder: string): Promise<Standing[]> {
  const { contestants, todos } = workload;
  const entrants = new Map<Server, Entrant>();

  const entrantOf = async (server: Server): Promise<Entrant> => {
    const known = entrants.get(server);
    if (known !== undefined) return known;
    const entrant = { child: await start(server, folder), stored: 0 };
    entrants.set(server, entrant);
    if (server.stores) await store(entrant.child.port, todos);
    return entrant;
  };
  const send = async ({ server, shot }: Contestant): Promise<Slice> => {
    const entrant = await entrantOf(server);
    const done = await slice(entrant.child, shot, pace.seconds, connections);
    if (shot.method === "POST") entrant.stored += done.requests;
    return done;
  };
  const renewIfNearlyFull = async (contestant: Contestant) => {
    const entrant = await entrantOf(contestant.server);
    if (entrant.stored < nearlyFull) return;
    await entrant.child.stop();
    entrants.delete(contestant.server);
    await send(contestant);
  };

  try {
    await checkReplies(contestants, folder, async (server) => (await entrantOf(server)).child);
    for (const contestant of contestants) await send(contestant);

    const slices = contestants.map((contestant) => {
      const done: Slice[] = [];
      return { contestant, done };
    });
    for (let round = 0; round < pace.rounds; round += 1) {
      for (const { contestant, done } of round % 2 === 0 ? slices : slices.toReversed()) {
        await renewIfNearlyFull(contestant);
        done.push(await send(contestant));
      }
    }
    return standings(slices);
  } finally {
    for (const { child } of entrants.values()) await child.stop();
  }
}

/** Gives the bare handler the product's reply, and throws unless all contestants answer with the same bytes. */
async function checkReplies(
  contestants: Workload["contestants"],
  folder: string,
  childOf: (server: Server) => Promise<Child>,
): Promise<void> {
  const [{ shot: main }] = contestants;
  const fixed = await ask(await childOf(product), main.method === "GET" ? main : getOne);
  await Bun.write(`${folder}/reply.json`, JSON.stringify(fixed));

  for (const { label, server, shot } of contestants) {
    const reply = await ask(await childOf(server), shot);
    if (shot !== main || shot.method !== "GET") continue;
    const same =
      reply.body === fixed.body && (server !== bare || Bun.deepEquals(reply.headers, fixed.headers));
    if (!same) throw new Error(`${label} answers ${shot.path} otherwise than the product`);
  }
}

interface Reply {
  /** Without those that the runtime writes by itself. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
}

const ofTheRuntime = new Set(["connection", "content-length", "date", "keep-alive", "transfer-encoding"]);

async function ask(child: Child, { method, path, headers, body }: Shot): Promise<Reply> {
  const response = await fetch(`http://127.0.0.1:${child.port}${path}`, {
    method,
    headers,
    body: body ?? null,
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path} was answered with ${response.status} ${text}`);
  return { headers: [...response.headers].filter(([name]) => !ofTheRuntime.has(name)), body: text };
}

function standings(slices: readonly { contestant: Contestant; done: readonly Slice[] }[]): Standing[] {
  const own = slices[0]?.done ?? [];
  return slices.map(({ contestant, done }) => {
    const rounds = done.flatMap((theirs, round) => {
      const ours = own[round];
      return ours === undefined ? [] : [{ ours, theirs }];
    });
    return {
      label: contestant.label,
      perSecond: done.map((each) => each.perSecond),
      cpu: done.map((each) => each.cpu),
      core: done.map((each) => each.core),
      byCpu: rounds.map(({ ours, theirs }) => theirs.cpu / ours.cpu),
      byRate: rounds.map(({ ours, theirs }) => ours.perSecond / theirs.perSecond),
    };
  });
}
