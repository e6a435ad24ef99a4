/** Runs the checks of the sources at the same time. Prints the output of those that fail, and one line at the end. */
import process from "node:process";
import { requireDevelopmentPackages } from "./development-packages.ts";

requireDevelopmentPackages();

const CHECKS: readonly (readonly [script: string, ...args: string[]])[] = [
  ["types"],
  ["lint"],
  ["lint:prose"],
  ["docs", "--", "--check"],
  ["build:web", "--", "--check"],
];

const started = performance.now();
const failures = await Promise.all(
  CHECKS.map(async (check) => {
    const { exited, stdout, stderr } = Bun.spawn(["npm", "run", "--silent", ...check], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const [code, output, errors] = await Promise.all([exited, stdout.text(), stderr.text()]);
    if (code !== 0) process.stdout.write(`${output.trimEnd()}\n${errors.trimEnd()}\n\n`);
    return code === 0 ? [] : [`npm run ${check.join(" ")}`];
  }),
);
const failed = failures.flat();
const seconds = ((performance.now() - started) / 1000).toFixed(0);
process.stdout.write(
  failed.length === 0
    ? `All ${CHECKS.length} checks passed in ${seconds} s.\n`
    : `${failed.length} of ${CHECKS.length} checks failed: ${failed.join(", ")}.\n`,
);
process.exitCode = failed.length === 0 ? 0 : 1;
