import { expect, test } from "bun:test";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { until } from "../../test/until.ts";

const FLOOD_LINES = 5000;
/** Logs more than a pipe and the buffer hold, then one more line for each line of standard input. */
const FLOOD = `
  const { openLog } = await import(${JSON.stringify(fileURLToPath(new URL("log.ts", import.meta.url)))});
  const { log } = await openLog("info");
  for (let line = 0; line < ${FLOOD_LINES}; line++) log.info({ text: "x".repeat(1000) }, "flood");
  for await (const _ of console) log.info({}, "more");
`;

/** A process whose log is not read yet. It logs another line every few milliseconds. */
class Flood implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #writing: NodeJS.Timeout;
  stdout = "";
  stderr = "";

  constructor() {
    const args = ["--no-env-file", "-e", FLOOD];
    this.#child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stdin.on("error", () => {});
    this.#child.stderr.on("data", (chunk) => {
      this.stderr += chunk;
    });
    this.#writing = setInterval(() => this.#child.stdin.write("\n"), 10);
  }

  read(): void {
    this.#child.stdout.on("data", (chunk) => {
      this.stdout += chunk;
    });
  }

  closeOutput(): void {
    this.#child.stdout.destroy();
  }

  async end(): Promise<void> {
    clearInterval(this.#writing);
    this.#child.stdin.end();
    if (this.#child.exitCode === null) await once(this.#child, "close");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#writing);
    this.#child.kill("SIGKILL");
  }
}

const LOST = "todo: log lines are lost because standard output is read too slowly\n";

test("standard error reports once that log lines are lost, and once that the log cannot be written", async () => {
  await using flood = new Flood();
  await until(() => flood.stderr !== "", "standard error reports lost lines");
  expect(flood.stderr).toBe(LOST);
  flood.closeOutput();
  await until(() => flood.stderr !== LOST, "standard error reports the closed output");
  await flood.end();
  expect(flood.stderr.slice(LOST.length)).toMatch(/^todo: cannot write the log: .*\n$/);
});

test("the log keeps at most a mebibyte for a slow reader, and continues when it has been read", async () => {
  await using flood = new Flood();
  await until(() => flood.stderr !== "", "standard error reports lost lines");
  flood.read();
  await until(() => flood.stdout.includes('"more"'), "the log continues");
  await flood.end();
  const lines = flood.stdout.split("\n").filter((line) => line.includes('"flood"'));
  expect(lines.length).toBeWithin(1000, FLOOD_LINES / 2);
  expect(flood.stderr).toBe(LOST);
});
