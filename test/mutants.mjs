/**
 * Prints the mutants of source files as JSON. Runs on Node, because the instrumenter of StrykerJS 9 does not run on Bun
 * ("generator is not a function"). Usage: node test/mutants.mjs FILE…
 */
import { readFile } from "node:fs/promises";
import { Instrumenter } from "@stryker-mutator/instrumenter";

const never = () => false;
const nothing = () => {};
const instrumenter = new Instrumenter({
  isTraceEnabled: never,
  isDebugEnabled: never,
  isInfoEnabled: never,
  isWarnEnabled: never,
  isErrorEnabled: never,
  isFatalEnabled: never,
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  fatal: nothing,
});
const options = { plugins: null, ignorers: [], excludedMutations: [] };
const found = [];
for (const file of process.argv.slice(2)) {
  const content = await readFile(file, "utf8");
  const { mutants } = await instrumenter.instrument([{ name: file, content, mutate: true }], options);
  for (const { id, location, mutatorName, replacement } of mutants) {
    found.push({ id: `${file}#${id}`, file, ...location, kind: mutatorName, replacement });
  }
}
process.stdout.write(JSON.stringify(found));
