import { distance } from "fastest-levenshtein";
import { ALL_SETTINGS, getVariables, longName } from "./settings.ts";
import { UsageError } from "./usage-error.ts";

/** The variables of the process, by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

const CLUSTER_SERVICE = /_SERVICE_(?:HOST|PORT(?:_.+)?)$/;
const CLUSTER_PORT = /_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/;

/** Kubernetes sets variables in each pod for every service: one named "todo" leads to TODO_PORT=tcp://10.0.0.1:80. */
export function isKubernetesVariable(name: string, value: string): boolean {
  if (CLUSTER_SERVICE.test(name)) return true;
  return CLUSTER_PORT.test(name) && (/^(?:tcp|udp|sctp):\/\//.test(value) || /_\d+_/.test(name));
}

/** npm silently consumes flags that stand before `--`, and passes them on as variables. */
export function assertNoFlagsOfNpm(env: Environment): void {
  for (const { flag } of ALL_SETTINGS) {
    if (flag === undefined) continue;
    const name = longName(flag);
    if (env[`npm_config_${name.slice(2).replaceAll("-", "_")}`] === undefined) continue;
    throw new UsageError(`npm consumed ${name}: put -- before it, as in npm start -- ${name}`);
  }
}

export function assertKnownVariables(env: Environment): void {
  const known = ALL_SETTINGS.flatMap(getVariables);
  for (const [name, value] of Object.entries(env)) {
    // The project's own tests have variables with TODO_TEST_.
    if (!/^TODO_(?!TEST_)/.test(name) || !value || known.includes(name)) continue;
    if (isKubernetesVariable(name, value)) continue;
    const nearest = known.toSorted((a, b) => distance(name, a) - distance(name, b))[0];
    throw new UsageError(
      `unknown variable ${name}: did you mean ${nearest}? (npm start -- --help lists all variables)`,
    );
  }
}

/** Returns the variables that look like settings, but that Kubernetes sets for a service of its own. */
export function clusterVariables(env: Environment): string[] {
  return Object.keys(env).filter(
    (name) => name.startsWith("TODO_") && isKubernetesVariable(name, env[name] ?? ""),
  );
}
