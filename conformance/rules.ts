/**
 * Every rule of the specification. The table is rules.json.
 *
 * The model judges most rules of the to-do routes. A case under `cases/` judges each of the others, unless `notObservable`
 * says why no client can check it and names the test that does. The kit has no rule for what the specification marks
 * "not shown", unless another sentence implies it. It has none for permissions either, such as storage in memory (section 1).
 */

import table from "./rules.json" with { type: "json" };

/** What a rule needs: `--token`, `--user`, or `--fresh` (an empty server without other clients). */
export type Need = "token" | "user" | "fresh";

export interface Rule {
  readonly id: string;
  /** The first section of the specification that states the rule. */
  readonly section: string;
  readonly description: string;
  readonly needs?: Need;
  /** True when the model judges the rule. */
  readonly byModel?: boolean;
  readonly notObservable?: string;
}

/** The names of the sections, in order. Section 6 (events) states no rule. */
export const sections: Readonly<Record<string, string>> = table.sections;

type Table = typeof table;
export type CaseRuleId = keyof Table["byCase"] | keyof Table["withToken"] | keyof Table["withUser"];
export type RuleId = keyof Table["byModel"] | keyof Table["byModelFresh"] | CaseRuleId;

/** The rules that each case relies on. When one of them fails, a failure of the case shows nothing new. */
export const reliesOn: ReadonlyMap<string, readonly string[]> = new Map(Object.entries(table.reliesOn));

function fromGroup(group: Readonly<Record<string, string[]>>, more: Partial<Rule> = {}): Rule[] {
  return Object.entries(group).map(([id, [section = "", description = ""]]) => ({
    id,
    section,
    description,
    ...more,
  }));
}

/** All rules by section. */
export const rules: readonly Rule[] = [
  ...fromGroup(table.byModel, { byModel: true }),
  ...fromGroup(table.byModelFresh, { byModel: true, needs: "fresh" }),
  ...fromGroup(table.byCase),
  ...fromGroup(table.withToken, { needs: "token" }),
  ...fromGroup(table.withUser, { needs: "user" }),
  ...Object.entries(table.notObservable).map(([id, [description = "", notObservable = ""]]): Rule => {
    return { id, section: "5", description, notObservable };
  }),
].toSorted((a, b) => Number(a.section) - Number(b.section));
