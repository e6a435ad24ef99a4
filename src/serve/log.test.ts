import { expect, test } from "bun:test";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type Command, run } from "../../test/command.ts";
import { until } from "../../test/until.ts";

const FLOOD_LINES = 5000;
const IMPORT = `const { openLog } = await import(${JSON.stringify(fileURLToPath(new URL("log.ts", import.meta.url)))});`;
/** Logs more than a pipe and the buffer hold, then one more line for each line of standard input. */
const FLOOD = `
  ${IMPORT}
  const { log } = openLog("info");
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

test("a killed process loses no line that is older than a second", async () => {
  const child = await runScript(`
    for (let line = 0; line < 100; line++) log.info({ line }, "early");
    await Bun.sleep(1000);
    for (let line = 0; line < 100; line++) log.info({ line }, "late");
    process.kill(process.pid, "SIGKILL");`);
  expect(child.stdout().match(/"early"/g)).toHaveLength(100);
});

test("flush waits until all lines are written, also if they are read late", async () => {
  const script = `
    ${IMPORT}
    const { log, flush } = openLog("info");
    for (let line = 0; line < ${FLOOD_LINES}; line++) log.info({ line }, "flood");
    flush().then(() => process.exit(0));
    process.stderr.write("flushing");`;
  const child = spawn(process.execPath, ["--no-env-file", "-e", script], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  await once(child.stderr, "data");
  const text = Buffer.concat(await Array.fromAsync<Buffer>(child.stdout)).toString();
  expect(text.match(/"flood"/g)).toHaveLength(FLOOD_LINES);
});

test("a process that exits without flush writes its last lines", async () => {
  const child = await runScript(`for (const line of [1, 2, 3]) log.info({ line }, "last"); process.exit(0);`);
  expect(child.stdout().match(/"last"/g)).toHaveLength(3);
});

/** Returns a process that has run a script with a log. */
async function runScript(script: string): Promise<Command> {
  const opened = `${IMPORT} const { log, flush } = openLog("info");`;
  await using child = run([process.execPath, "--no-env-file", "-e", opened + script]);
  await child.exited;
  return child;
}
