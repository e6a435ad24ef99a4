import type { CaseRuleId } from "./rules.ts";
import type { TargetClient } from "./target-client.ts";

/** Checks one rule. Throws a `RuleViolation` with the reason when the server violates it. */
export type Case = (client: TargetClient) => Promise<void>;

/** The cases of one suite, by the id of the rule that each checks. */
export type Cases = Readonly<Partial<Record<CaseRuleId, Case>>>;
