/** Runs every case once, in order, and reports a result for every rule. */
import type { Case, Cases } from "./case.ts";
import { cases as api } from "./cases/api.ts";
import { cases as basic } from "./cases/basic.ts";
import { cases as bearer } from "./cases/bearer.ts";
import { cases as bodies } from "./cases/bodies.ts";
import { cases as emptyServer } from "./cases/empty-server.ts";
import { cases as ids } from "./cases/ids.ts";
import { cases as todosCreate } from "./cases/todos-create.ts";
import { cases as todosDelete } from "./cases/todos-delete.ts";
import { cases as todosRead } from "./cases/todos-read.ts";
import { cases as todosUpdate } from "./cases/todos-update.ts";
import { cases as validation } from "./cases/validation.ts";
import { dependencies as specDependencies } from "./dependencies.ts";
import { type Need, type Rule, rules as specRules } from "./rules.ts";
import { RuleViolation, TargetClient, UnreachableError } from "./target-client.ts";

// The cases for an empty server run first, because later cases create to-dos.
export const suites: readonly Cases[] = [
  emptyServer,
  api,
  todosCreate,
  todosRead,
  todosUpdate,
  todosDelete,
  ids,
  validation,
  bodies,
  bearer,
  basic,
];

export const rules: readonly Rule[] = specRules;

/** The rules that each case relies on, by the id of the rule that it checks. */
export type Dependencies = Readonly<Record<string, readonly string[]>>;

export const dependencies: Dependencies = specDependencies;

export interface Options {
  /** An http or https URL. The runner appends the paths of the specification to it. */
  readonly baseUrl: string;
  readonly token?: string;
  readonly user?: { readonly name: string; readonly password: string };
  /** The name of the token's client. Without it, the runner accepts any text as a name. */
  readonly clientName?: string;
  /** True when the server has just started, is empty and has no other clients. Default: false. */
  readonly fresh?: boolean;
  /** Time limit for one request, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number;
}

export type Result = { readonly rule: Rule } & (
  | { readonly status: "passed" }
  | { readonly status: "failed" | "not judged" | "skipped" | "not observable"; readonly reason: string }
);

export interface Report {
  readonly results: readonly Result[];
  /** True when no rule failed and none was skipped because a credential is missing. A rule that is not judged implies a failed one. */
  readonly passed: boolean;
}

/** Returns the errors of the kit itself, such as a rule without a case or a case for an unknown rule. */
export function suiteErrors(
  rules: readonly Rule[],
  suites: readonly Readonly<Record<string, unknown>>[],
  dependencies: Dependencies = {},
): string[] {
  const caseIds = suites.flatMap((cases) => Object.keys(cases));
  const ruleIds = rules.map((rule) => rule.id);
  return [
    ...duplicates(ruleIds).map((id) => `two rules have the id ${id}`),
    ...duplicates(caseIds).map((id) => `two cases check the rule ${id}`),
    ...caseIds.filter((id) => !ruleIds.includes(id)).map((id) => `a case checks the unknown rule ${id}`),
    ...rules.flatMap(({ id, notObservable }) => {
      const hasCase = caseIds.includes(id);
      if (!hasCase && notObservable === undefined)
        return [`the rule ${id} has neither a case nor notObservable`];
      return hasCase && notObservable !== undefined
        ? [`the rule ${id} has both a case and notObservable`]
        : [];
    }),
    ...Object.keys(dependencies)
      .filter((id) => relyingOn(id, dependencies).has(id))
      .map((id) => `the rule ${id} depends on itself`),
  ];
}

/** Returns the ids of all rules that a rule depends on, directly or through others. */
function relyingOn(id: string, dependencies: Dependencies, found = new Set<string>()): Set<string> {
  for (const dependency of dependencies[id] ?? []) {
    if (found.has(dependency)) continue;
    found.add(dependency);
    relyingOn(dependency, dependencies, found);
  }
  return found;
}

/** Checks the server at `options.baseUrl` against every rule. Rejects with `UnreachableError` when no server answers. */
export async function checkServer(options: Options): Promise<Report> {
  const errors = suiteErrors(rules, suites, dependencies);
  if (errors.length > 0) throw new Error(errors.join("; "));
  const client = new TargetClient({
    baseUrl: options.baseUrl.replace(/\/+$/, ""),
    token: options.token ?? "",
    user: options.user ?? { name: "", password: "" },
    clientName: options.clientName,
    timeoutMs: options.timeoutMs ?? 5000,
  });
  await checkReachable(client);
  const resultsById = new Map<string, Result>();
  const violations = new Map<string, RuleViolation>();
  for (const [id, testCase] of suites.flatMap((cases) => Object.entries(cases))) {
    const rule = rules.find((rule) => rule.id === id);
    if (rule === undefined) continue;
    const result = await runCase(rule, testCase, client, options);
    if (result instanceof RuleViolation) violations.set(id, result);
    else resultsById.set(id, result);
  }
  const results = rules.map(
    (rule) => resultsById.get(rule.id) ?? violationResult(rule, violations) ?? notObservableResult(rule),
  );
  return { results, passed: results.every(isAcceptable) };
}

async function runCase(
  rule: Rule,
  testCase: Case,
  client: TargetClient,
  options: Options,
): Promise<Result | RuleViolation> {
  if (rule.needs !== undefined && !isAvailable(rule.needs, options)) {
    return { rule, status: "skipped", reason: SKIP_REASONS[rule.needs] };
  }
  try {
    await testCase(client);
    return { rule, status: "passed" };
  } catch (error) {
    if (error instanceof RuleViolation) return error;
    throw error;
  } finally {
    await client.cleanup();
  }
}

/** Returns "failed" for a rule that failed by itself, and "not judged" if a rule that it depends on failed. */
function violationResult(rule: Rule, violations: ReadonlyMap<string, RuleViolation>): Result | undefined {
  const violation = violations.get(rule.id);
  if (violation === undefined) return undefined;
  const cause = causeOf(rule.id, violations);
  if (cause === undefined) return { rule, status: "failed", reason: violation.message };
  return { rule, status: "not judged", reason: `not judged because ${cause} failed` };
}

/** Returns the violated rule at the end of the chain of violated rules that a rule depends on, if there is a chain. */
function causeOf(id: string, violations: ReadonlyMap<string, RuleViolation>): string | undefined {
  const seen = new Set<string>();
  let cause = id;
  for (let next: string | undefined = id; next !== undefined; next = blockerOf(cause, violations)) {
    // Each rule relies on the next one in a circle, so none explains the others.
    if (seen.has(next)) return undefined;
    seen.add(next);
    cause = next;
  }
  return cause === id ? undefined : cause;
}

function blockerOf(id: string, violations: ReadonlyMap<string, RuleViolation>): string | undefined {
  const prerequisites = [violations.get(id)?.prerequisite ?? id, ...(dependencies[id] ?? [])];
  return prerequisites.find((other) => other !== id && violations.has(other));
}

const SKIP_REASONS: Readonly<Record<Need, string>> = {
  token: "skipped because --token is missing",
  user: "skipped because --user is missing",
  fresh: "skipped because --fresh is missing",
};

function isAvailable(need: Need, options: Options): boolean {
  return need === "fresh" ? options.fresh === true : options[need] !== undefined;
}

function notObservableResult(rule: Rule): Result {
  return { rule, status: "not observable", reason: rule.notObservable ?? "" };
}

function isAcceptable({ rule, status }: Result): boolean {
  return status === "skipped" ? rule.needs === "fresh" : !["failed", "not judged"].includes(status);
}

async function checkReachable(client: TargetClient): Promise<void> {
  try {
    await client.send("GET", "/api/todos");
  } catch (error) {
    // A server that answers after the time limit is reachable; its cases fail.
    if (error instanceof UnreachableError) throw error;
    if (!(error instanceof RuleViolation)) throw error;
  }
}

function duplicates(names: readonly string[]): string[] {
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}
