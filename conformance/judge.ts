/** Judges a server against the rules: every case once, in order, and a verdict for every rule. */
import type { Case, Cases } from "./case.ts";
import { cases as api } from "./cases/api.ts";
import { cases as basic } from "./cases/basic.ts";
import { cases as bearer } from "./cases/bearer.ts";
import { cases as bodies } from "./cases/bodies.ts";
import { cases as fresh } from "./cases/fresh.ts";
import { cases as ids } from "./cases/ids.ts";
import { cases as todosCreate } from "./cases/todos-create.ts";
import { cases as todosDelete } from "./cases/todos-delete.ts";
import { cases as todosRead } from "./cases/todos-read.ts";
import { cases as todosUpdate } from "./cases/todos-update.ts";
import { cases as validation } from "./cases/validation.ts";
import { type Need, type Rule, rules as specRules } from "./rules.ts";
import { Failure, Service, Unreachable } from "./service.ts";

// The fresh ones come first: they need the empty collection.
export const themes: readonly Cases[] = [
  fresh,
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
  /** An http or https URL; paths of the specification are appended to it. */
  readonly base: string;
  readonly token?: string;
  readonly user?: { readonly name: string; readonly password: string };
  /** The name of the token's client; without it any text passes as a name. */
  readonly clientName?: string;
  /** The server has just started, is empty, and nobody else uses it. */
  readonly fresh?: boolean;
  /** How long one request may take, in milliseconds; 5000 by default. */
  readonly timeoutMs?: number;
}

export type Verdict = { readonly rule: Rule } & (
  | { readonly result: "passed" }
  | { readonly result: "failed" | "not judged" | "not observable"; readonly why: string }
);

export interface Report {
  readonly verdicts: readonly Verdict[];
  /** No rule failed, and none was left unjudged for want of a credential. */
  readonly passed: boolean;
}

/** What is wrong with the kit itself: a rule that nothing proves, a case for no rule. Empty when all is well. */
export function gaps(rules: readonly Rule[], themes: readonly Readonly<Record<string, unknown>>[]): string[] {
  const proved = themes.flatMap((cases) => Object.keys(cases));
  const ids = rules.map((rule) => rule.id);
  return [
    ...repeated(ids).map((id) => `two rules have the id ${id}`),
    ...repeated(proved).map((id) => `two cases prove ${id}`),
    ...proved.filter((id) => !ids.includes(id)).map((id) => `a case names ${id}, which is no rule`),
    ...rules.flatMap(({ id, notObservable }) => {
      const hasCase = proved.includes(id);
      if (!hasCase && notObservable === undefined)
        return [`the rule ${id} has neither a case nor notObservable`];
      return hasCase && notObservable !== undefined
        ? [`the rule ${id} has both a case and notObservable`]
        : [];
    }),
  ];
}

/** Judges the server at `options.base`. Rejects with `Unreachable` when nothing answers there. */
export async function judge(options: Options): Promise<Report> {
  const complaints = gaps(rules, themes);
  if (complaints.length > 0) throw new Error(complaints.join("; "));
  const service = new Service({
    base: options.base.replace(/\/+$/, ""),
    token: options.token ?? "",
    user: options.user ?? { name: "", password: "" },
    clientName: options.clientName,
    timeoutMs: options.timeoutMs ?? 5000,
  });
  await reach(service);
  const results = new Map<string, Verdict>();
  try {
    for (const [id, prove] of themes.flatMap((cases) => Object.entries(cases))) {
      const rule = rules.find((rule) => rule.id === id);
      if (rule !== undefined) results.set(id, await verdictOf(rule, prove, service, options));
    }
  } finally {
    await service.tidy();
  }
  const verdicts = rules.map((rule) => results.get(rule.id) ?? unobserved(rule));
  return { verdicts, passed: verdicts.every(passes) };
}

async function verdictOf(rule: Rule, prove: Case, service: Service, options: Options): Promise<Verdict> {
  if (rule.needs !== undefined && !has(options, rule.needs)) {
    return { rule, result: "not judged", why: wanting[rule.needs] };
  }
  try {
    await prove(service);
    return { rule, result: "passed" };
  } catch (error) {
    if (error instanceof Failure) return { rule, result: "failed", why: error.message };
    throw error;
  }
}

const wanting: Readonly<Record<Need, string>> = {
  token: "not judged: give --token",
  user: "not judged: give --user",
  fresh: "not judged without --fresh",
};

function has(options: Options, need: Need): boolean {
  return need === "fresh" ? options.fresh === true : options[need] !== undefined;
}

function unobserved(rule: Rule): Verdict {
  return { rule, result: "not observable", why: rule.notObservable ?? "" };
}

function passes({ rule, result }: Verdict): boolean {
  return result === "not judged" ? rule.needs === "fresh" : result !== "failed";
}

async function reach(service: Service): Promise<void> {
  try {
    await service.send("GET", "/api/todos");
  } catch (error) {
    // A server that answers too late is reachable: the cases judge it.
    if (error instanceof Unreachable) throw error;
    if (!(error instanceof Failure)) throw error;
  }
}

function repeated(names: readonly string[]): string[] {
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}
