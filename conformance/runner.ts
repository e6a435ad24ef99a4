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
  | { readonly status: "failed" | "skipped" | "not observable"; readonly reason: string }
);

export interface Report {
  readonly results: readonly Result[];
  /** True when no rule failed and none was skipped because a credential is missing. */
  readonly passed: boolean;
}

/** Returns the errors of the kit itself, such as a rule without a case or a case for an unknown rule. */
export function suiteErrors(
  rules: readonly Rule[],
  suites: readonly Readonly<Record<string, unknown>>[],
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
  ];
}

/** Checks the server at `options.baseUrl` against every rule. Rejects with `UnreachableError` when no server answers. */
export async function checkServer(options: Options): Promise<Report> {
  const errors = suiteErrors(rules, suites);
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
  try {
    for (const [id, testCase] of suites.flatMap((cases) => Object.entries(cases))) {
      const rule = rules.find((rule) => rule.id === id);
      if (rule !== undefined) resultsById.set(id, await runCase(rule, testCase, client, options));
    }
  } finally {
    await client.cleanup();
  }
  const results = rules.map((rule) => resultsById.get(rule.id) ?? notObservableResult(rule));
  return { results, passed: results.every(isAcceptable) };
}

async function runCase(rule: Rule, testCase: Case, client: TargetClient, options: Options): Promise<Result> {
  if (rule.needs !== undefined && !isAvailable(rule.needs, options)) {
    return { rule, status: "skipped", reason: SKIP_REASONS[rule.needs] };
  }
  try {
    await testCase(client);
    return { rule, status: "passed" };
  } catch (error) {
    if (error instanceof RuleViolation) return { rule, status: "failed", reason: error.message };
    throw error;
  }
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
  return status === "skipped" ? rule.needs === "fresh" : status !== "failed";
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
