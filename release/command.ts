import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** The root of the project. */
export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Runs a command and returns its standard output. Throws an Error with the command and its messages if it fails. */
export function output(cwd: string, command: string, ...args: readonly string[]): string {
  const { error, status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error !== undefined) throw new Error(`${command} cannot run: ${error.message}`, { cause: error });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed:\n${stdout}${stderr}`);
  return stdout;
}
