// Prints the mutants of source files as JSON. Usage: node test/mutants.mjs FILE…
// Runs on Node, because the instrumenter of StrykerJS 9 does not run on Bun ("generator is not a function").
import { readFile } from "node:fs/promises";
import { Instrumenter } from "@stryker-mutator/instrumenter";

const silentLog = new Proxy({}, { get: () => () => false });
const instrumenter = new Instrumenter(silentLog);
const options = { plugins: null, ignorers: [], excludedMutations: [] };
const found = [];
for (const file of process.argv.slice(2)) {
  const content = await readFile(file, "utf8");
  const offsetOf = ({ line, column }) =>
    content.split("\n", line).reduce((sum, row) => sum + row.length + 1, column);
  const { mutants } = await instrumenter.instrument([{ name: file, content, mutate: true }], options);
  for (const { id, location, mutatorName: kind, replacement } of mutants) {
    const [start, end] = [offsetOf(location.start), offsetOf(location.end)];
    // The wording of messages is not behavior.
    if (kind === "StringLiteral" && /\S\s\S/.test(content.slice(start, end))) continue;
    const [line, lastLine] = [location.start.line + 1, location.end.line + 1];
    found.push({ id: `${file}#${id}`, file, line, lastLine, start, end, kind, replacement });
  }
}
process.stdout.write(JSON.stringify(found));
