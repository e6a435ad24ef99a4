/** Runs generated sequences on the target beside the model, until the time is over or a rule is violated. */
import { toCurl } from "./curl.ts";
import { Generator } from "./generator.ts";
import { ownProperty } from "./json.ts";
import { Model } from "./model.ts";
import { type Failure, shrink } from "./shrink.ts";
import type { Step } from "./step.ts";
import { RuleViolation, type TargetClient } from "./target-client.ts";
import { LIST, Walk } from "./walk.ts";

export interface ModelOptions {
  readonly token?: string;
  readonly user?: { readonly name: string; readonly password: string };
  /** True when the server has just started, is empty and has no other clients. Default: false. */
  readonly fresh?: boolean;
  /** The same seed generates the same sequences. Default: a random one. */
  readonly seed?: number;
  /** How long sequences are generated after the required ones. 0: none are. */
  readonly seconds?: number;
}

export interface ModelResult {
  /** Whether all required sequences were executed. */
  readonly complete: boolean;
  readonly violation: RuleViolation | undefined;
  /** Commands for bash that show the violation. */
  readonly commands: readonly string[];
}

/** How long a failing sequence is made shorter. */
const SHRINK_SECONDS = 8;
/** How often a sequence with concurrent requests is repeated, because it does not fail each time. */
const REPETITIONS = 8;

const DEFAULT_SECONDS = 8;
/** The required sequences end after this time, too, so that a run on a slow target takes at most two minutes. */
const MAX_SECONDS = 80;

/** Judges the to-do routes by the model. */
export async function runModel(
  client: TargetClient,
  { seed, fresh = false, seconds = DEFAULT_SECONDS, token, user }: ModelOptions & { readonly seed: number },
): Promise<ModelResult> {
  const start = performance.now();
  const hasTime = (seconds: number) => () => performance.now() - start < seconds * 1000;
  const generator = new Generator(seed, [
    ...(token === undefined ? [] : (["token"] as const)),
    ...(user === undefined ? [] : (["user"] as const)),
    ...(["unknown token", "unknown user", "malformed"] as const),
  ]);
  const isComplete = () => sequences >= generator.required.length;
  let model = new Model(fresh, fresh ? 0n : undefined);
  let elder: bigint | undefined;
  let sequences = 0;
  while (hasTime(isComplete() ? seconds : MAX_SECONDS)()) {
    const steps = generator.required[sequences]?.() ?? generator.any();
    const walk = new Walk(client, model, elder);
    try {
      await execute(walk, steps, sequences % 2 === 0, hasTime(MAX_SECONDS));
      // One to-do stays, so that the target must keep it for the rest of the run.
      if (sequences > 0) elder ??= walk.survivor;
      await walk.finish(elder);
    } catch (error) {
      if (!(error instanceof RuleViolation)) throw error;
      const { violation, commands } = await minimize(client, fresh, {
        steps: walk.executed,
        violation: error,
      });
      return { complete: isComplete(), violation, commands };
    }
    model = walk.model;
    sequences += 1;
  }
  return { complete: isComplete(), violation: undefined, commands: [] };
}

async function execute(
  walk: Walk,
  steps: readonly Step[],
  readsList: boolean,
  hasTime: () => boolean,
): Promise<void> {
  if (walk.model.todos.size === 0) await walk.step(LIST);
  for (const step of steps) {
    if (!hasTime()) return;
    await walk.step(step, hasTime);
    if (readsList && "requests" in step && step.requests.length === 1) await walk.step(LIST);
  }
  await walk.step(LIST);
}

async function minimize(
  client: TargetClient,
  fresh: boolean,
  failure: Failure,
): Promise<{ violation: RuleViolation; commands: readonly string[] }> {
  const deadline = performance.now() + SHRINK_SECONDS * 1000;
  const hasTime = () => performance.now() < deadline;
  const replay = async (steps: readonly Step[]): Promise<Failure | undefined> => {
    const isConcurrent = steps.some((step) => "requests" in step && step.requests.length > 1);
    for (let repetition = 0; repetition < (isConcurrent ? REPETITIONS : 1) && hasTime(); repetition += 1) {
      await client.cleanup();
      const walk = new Walk(client, await knownState(client, fresh));
      try {
        for (const step of steps) await walk.step(step);
      } catch (error) {
        if (error instanceof RuleViolation) return { steps: walk.executed, violation: error };
        throw error;
      }
    }
    return undefined;
  };
  const shortest = await shrink(failure.steps, replay, hasTime);
  const { steps, violation } = shortest ?? failure;
  const commands = toCurl(client.target.baseUrl, steps.slice(-MAX_COMMANDS));
  if (shortest !== undefined && steps.length <= MAX_COMMANDS) return { violation, commands };
  const note =
    shortest === undefined
      ? "it did not happen again when the kit repeated it"
      : "a part of a longer sequence";
  return { violation, commands: [`# ${note}`, ...commands] };
}

const MAX_COMMANDS = 12;

/** A model of what the target contains now. The next id is not known. A fresh target is emptied. */
async function knownState(client: TargetClient, fresh: boolean): Promise<Model> {
  const model = new Model(fresh);
  if (!fresh) return model;
  const todos = async () => {
    const { json } = await client.send("GET", "/api/todos");
    return Array.isArray(json) ? json : [];
  };
  const ids = (await todos()).map((todo) => ownProperty(todo, "id"));
  for (const id of ids) await client.send("DELETE", `/api/todos/${id}`);
  model.adopt(ids.length === 0 ? [] : await todos());
  return model;
}
