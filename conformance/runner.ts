/** Checks a server by the model and by every case, and reports a result for every rule. */
import { cases as api } from "./cases/api.ts";
import { cases as basic } from "./cases/basic.ts";
import { cases as bearer } from "./cases/bearer.ts";
import { type ModelOptions, type ModelResult, runModel } from "./model-run.ts";
import { type CaseRuleId, type Need, type Rule, reliesOn, rules } from "./rules.ts";
import { RuleViolation, TargetClient, UnreachableError } from "./target-client.ts";

/** Checks one rule. Throws a `RuleViolation` with the reason when the server violates it. */
type Case = (client: TargetClient) => Promise<void>;

// The type requires a case for every rule that the model does not judge.
const cases: Readonly<Record<CaseRuleId, Case>> = { ...api, ...bearer, ...basic };

export interface Options extends ModelOptions {
  /** An http or https URL. The runner appends the paths of the specification to it. */
  readonly baseUrl: string;
  /** The name of the token's client. Without it, the runner accepts any text as a name. */
  readonly clientName?: string;
  /** Time limit for one request, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number;
  /** Ends the run: no further request is sent, and the to-dos are deleted. The run rejects with `Stopped`. */
  readonly signal?: AbortSignal;
}

export type Result = { readonly rule: Rule } & (
  | { readonly status: "passed" }
  | {
      readonly status: "failed" | "not judged" | "skipped" | "not observable";
      readonly reason: string;
      /** Commands for bash that show why the rule failed. */
      readonly commands?: readonly string[];
    }
);

export interface Report {
  readonly results: readonly Result[];
  /** True when no rule failed and none was skipped because a credential is missing. A rule that is not judged implies a failed one. */
  readonly passed: boolean;
  readonly seed: number;
  readonly requests: number;
  /** Whether the time was enough for all required sequences. */
  readonly complete: boolean;
}

/** Checks the server at `options.baseUrl` against every rule. Rejects with `UnreachableError` when no server answers. */
export async function checkServer(options: Options): Promise<Report> {
  const seed = options.seed ?? Math.floor(Math.random() * 1e9);
  const client = createClient(options);
  let stopped: Promise<void> | undefined;
  options.signal?.addEventListener("abort", () => {
    stopped = client.stop();
  });
  try {
    await checkReachable(client);
    const model = await runModel(client, { ...options, seed });
    await client.cleanup();
    const byCase = await runCases(client, options, model.violation);
    const results = rules.map((rule): Result => {
      if (rule.byModel === true) return modelResult(rule, model, options);
      const notObservable = { rule, status: "not observable", reason: rule.notObservable ?? "" } as const;
      return byCase.find((result) => result.rule === rule) ?? notObservable;
    });
    return {
      results,
      passed: results.every(isAcceptable),
      seed,
      requests: client.sent,
      complete: model.complete || model.violation !== undefined,
    };
  } finally {
    await stopped;
    await client.cleanup();
  }
}

export function createClient({ baseUrl, token, user, clientName, timeoutMs }: Options): TargetClient {
  return new TargetClient({
    baseUrl: baseUrl.replace(/\/+$/, ""),
    token: token ?? "",
    user: user ?? { name: "", password: "" },
    clientName,
    timeoutMs: timeoutMs ?? 5000,
  });
}

/** Runs every case once, in order. `byModel` is what the model already found. */
export async function runCases(
  client: TargetClient,
  options: Options,
  byModel?: RuleViolation,
): Promise<Result[]> {
  /** The rules that failed or were not judged, each with the failed rule that explains it. */
  const causes = new Map<string, string>();
  const results: Result[] = [];
  for (const [id, testCase] of Object.entries(cases)) {
    const rule = rules.find((each) => each.id === id);
    if (rule === undefined) continue;
    const cause =
      id in api ? byModel?.rule : reliesOn.get(id)?.flatMap((other) => causes.get(other) ?? [])[0];
    if (rule.needs !== undefined && !isAvailable(rule.needs, options))
      results.push(skipped(rule, rule.needs));
    else if (cause !== undefined) results.push(notJudged(rule, cause));
    else results.push(await runCase(rule, testCase, client));
    const { status } = results.at(-1) ?? {};
    if (status === "failed" || status === "not judged") causes.set(id, cause ?? id);
  }
  return results;
}

function modelResult(rule: Rule, { violation, commands }: ModelResult, options: Options): Result {
  if (violation?.rule === rule.id) return { rule, status: "failed", reason: violation.message, commands };
  if (rule.needs !== undefined && !isAvailable(rule.needs, options)) return skipped(rule, rule.needs);
  if (violation === undefined) return { rule, status: "passed" };
  return notJudged(rule, violation.rule ?? "");
}

function notJudged(rule: Rule, cause: string): Result {
  return { rule, status: "not judged", reason: `not judged because ${cause} failed` };
}

async function runCase(rule: Rule, testCase: Case, client: TargetClient): Promise<Result> {
  try {
    await testCase(client);
    return { rule, status: "passed" };
  } catch (error) {
    if (error instanceof RuleViolation) return { rule, status: "failed", reason: error.message };
    throw error;
  } finally {
    await client.cleanup();
  }
}

const SKIP_REASONS: Readonly<Record<Need, string>> = {
  token: "skipped because --token is missing",
  user: "skipped because --user is missing",
  fresh: "skipped because --fresh is missing",
};

const skipped = (rule: Rule, need: Need): Result => ({ rule, status: "skipped", reason: SKIP_REASONS[need] });

const isAvailable = (need: Need, options: Options): boolean =>
  need === "fresh" ? options.fresh === true : options[need] !== undefined;

function isAcceptable({ rule, status }: Result): boolean {
  return status === "skipped" ? rule.needs === "fresh" : !["failed", "not judged"].includes(status);
}

async function checkReachable(client: TargetClient): Promise<void> {
  try {
    await client.send("GET", "/api/todos");
  } catch (error) {
    // A server that answers after the time limit is reachable; the model judges it.
    if (error instanceof UnreachableError || !(error instanceof RuleViolation)) throw error;
  }
}
