import type { RuleId } from "./rules.ts";
import type { Service } from "./service.ts";

/** Returns when the rule holds; throws a `Failure` that says why when it does not. */
export type Case = (service: Service) => Promise<void>;

/** The cases of one theme, each under the rule it proves. */
export type Cases = Readonly<Partial<Record<RuleId, Case>>>;
