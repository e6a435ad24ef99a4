/** Lists what remains to be done before a tag. Exits with 1 if something remains. */
import { spawnSync } from "node:child_process";
import { version } from "../package.json" with { type: "json" };
import { remainingWork, SETUP } from "./check.ts";
import { ROOT } from "./command.ts";

const remaining = remainingWork({ root: ROOT, today: new Date().toISOString().slice(0, 10), audit });
for (const line of remaining) process.stdout.write(`- ${line}\n`);
process.stdout.write(`Once, by a person (${SETUP.length} steps that no check can see):\n`);
for (const line of SETUP) process.stdout.write(`- ${line}\n`);
process.stdout.write(
  remaining.length === 0
    ? `${version} is ready: tag it with git tag v${version}\n`
    : `${version} is not ready: ${remaining.length} checks failed\n`,
);
if (remaining.length > 0) process.exitCode = 1;

/** Returns why the dependencies cannot be released, or an empty text. */
function audit(): string {
  const { status, stdout, stderr } = spawnSync("npm", ["audit", "--audit-level=high", "--loglevel=error"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  if (status === 0) return "";
  if (/audit endpoint returned an error/.test(stdout + stderr))
    return "the registry answers no audits: run npm audit with another registry";
  return `update the packages that npm audit names\n${stdout}`.trimEnd();
}
