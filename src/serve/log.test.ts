import { describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { ended, run } from "../../test/command.ts";
import { until } from "../../test/until.ts";
import { ServiceError } from "../error.ts";
import { formatJson, formatText } from "./log.ts";

const FLOOD_LINES = 5000;
const IMPORT = `const { openLog } = await import(${JSON.stringify(fileURLToPath(new URL("log.ts", import.meta.url)))});`;
const OPENED = `${IMPORT} const { log, flush } = openLog("info");`;
/** Logs more than a pipe and the buffer hold, then one more line for each line of standard input. */
const FLOOD = `
  ${OPENED}
  for (let line = 0; line < ${FLOOD_LINES}; line++) log.info({ text: "x".repeat(1000) }, "flood");
  for await (const _ of console) log.info({}, "more");
`;

/** Starts a process whose log is not read yet. It logs another line every few milliseconds. */
function startFlood() {
  const child = spawn(process.execPath, ["--no-env-file", "-e", FLOOD], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.on("error", () => {});
  let [stdout, stderr] = ["", ""];
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const writing = setInterval(() => child.stdin.write("\n"), 10);
  return {
    stdout: () => stdout,
    stderr: () => stderr,
    read: () =>
      child.stdout.on("data", (chunk) => {
        stdout += chunk;
      }),
    closeOutput: () => child.stdout.destroy(),
    end: async () => {
      clearInterval(writing);
      child.stdin.end();
      if (child.exitCode === null) await once(child, "close");
    },
    [Symbol.dispose]: () => {
      clearInterval(writing);
      child.kill("SIGKILL");
    },
  };
}

const LOST = "todo: log lines are lost because standard output is read too slowly\n";

test("standard error reports once that log lines are lost, and once that the log cannot be written", async () => {
  using flood = startFlood();
  await until(() => flood.stderr() !== "", "standard error reports lost lines");
  expect(flood.stderr()).toBe(LOST);
  flood.closeOutput();
  await until(() => flood.stderr() !== LOST, "standard error reports the closed output");
  await flood.end();
  expect(flood.stderr().slice(LOST.length)).toMatch(/^todo: cannot write the log: .*\n$/);
});

test("the log keeps at most a mebibyte for a slow reader, and continues when it has been read", async () => {
  using flood = startFlood();
  await until(() => flood.stderr() !== "", "standard error reports lost lines");
  flood.read();
  await until(() => flood.stdout().includes('"more"'), "the log continues");
  await flood.end();
  const lines = flood
    .stdout()
    .split("\n")
    .filter((line) => line.includes('"flood"'));
  expect(lines.length).toBeWithin(1000, FLOOD_LINES / 2);
  expect(flood.stderr()).toBe(LOST);
});

test("lines are written soon after they are logged, without another one", async () => {
  const script = `for (let line = 0; line < 100; line++) log.info({ line }, "early"); setInterval(() => {}, 1000);`;
  await using child = run([process.execPath, "--no-env-file", "-e", OPENED + script]);
  await until(() => child.stdout().split('"early"').length > 100, "all lines are written");
});

test("flush waits until all lines are written, also if they are read late", async () => {
  const script = `
    ${OPENED}
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
  const script = `for (const line of [1, 2, 3]) log.info({ line }, "last"); process.exit(0);`;
  const { stdout } = await ended(run([process.execPath, "--no-env-file", "-e", OPENED + script]));
  expect(stdout.match(/"last"/g)).toHaveLength(3);
});

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const circular: Error & { code?: unknown } = new Error("circular");
circular.code = { circular };
const hostile = new Proxy(new Error("hostile"), {
  get() {
    throw new Error("no");
  },
});
/** Any character that ends a line for some reader, or changes what a terminal shows. DEL does neither. */
const UNSAFE = /[[\p{Cc}\p{Zl}\p{Zp}\p{Cs}]--\x7f]/v;

function parse(line: string): Readonly<Record<string, unknown>> {
  expect(line).toEndWith("\n");
  expect(line.slice(0, -1)).not.toMatch(UNSAFE);
  return JSON.parse(line);
}

const json = (fields: object): Readonly<Record<string, unknown>> =>
  parse(formatJson("info", fields, "message"));

describe("a JSON line", () => {
  test("has the level, the time, the fields and the message, in this order", () => {
    const line = parse(formatJson("warn", { a: 1, b: undefined, c: "é\n", d: { e: [true] } }, "message"));
    const fields = { a: 1, c: "é\n", d: { e: [true] } };
    expect(line).toEqual({ level: "warn", time: TIME, ...fields, msg: "message" });
    expect(Object.keys(line)).toEqual(["level", "time", "a", "c", "d", "msg"]);
  });

  test("keeps every text, on one line", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (text, other) => {
        const [name, message] = [`a${text}`, `b${other}`];
        expect(json({ [name]: other, err: new Error(message) })).toMatchObject({
          [name]: other,
          err: { message },
        });
        expect(formatText("info", { [name]: other }, message)).toMatch(/^[^\n]+\n$/);
      }),
    );
    const controls = "\u0000\r\n\u0085\u2028\u2029\ud800\udc00\udfff\u202e";
    expect(json({ controls }).controls).toBe(controls);
  });
});

describe("an error in a line", () => {
  test("has the messages and stacks of its causes, and its code", () => {
    const cause = Object.assign(new TypeError("inner", { cause: "text" }), { code: "INNER" });
    const err = Object.assign(new Error("outer", { cause }), { code: "OUTER" });
    const stack = `${err.stack}\ncaused by: ${cause.stack}\ncaused by: text`;
    expect(json({ err })).toMatchObject({ err: { message: "outer: inner: text", code: "OUTER", stack } });
    expect(stack).toContain("log.test.ts");
  });

  test("has no other property, because a driver's errors contain titles and queries", () => {
    const err = Object.assign(new Error("failed"), { detail: "Key (title)=(s3cret)", query: "s3cret" });
    expect(
      formatJson("error", { err: new ServiceError("store_unavailable", { cause: err }) }, "m"),
    ).not.toContain("s3cret");
  });

  test("has at most ten causes, also if it causes itself", () => {
    const err = new Error("again");
    err.cause = err;
    expect(json({ err })).toMatchObject({ err: { message: Array(10).fill("again").join(": ") } });
  });

  test.each<[what: string, err: unknown, shown: unknown]>([
    ["number", 7, { message: "7", stack: "7" }],
    ["null", null, { message: "null", stack: "null" }],
    ["undefined", undefined, undefined],
    ["proxy that throws", hostile, "(cannot be encoded)"],
    ["object without a prototype", Object.create(null), "(cannot be encoded)"],
    ["error with a code that refers to itself", circular, "(cannot be encoded)"],
  ])("may be a thrown %s", (_what, err, shown) => {
    expect(json({ err, after: 1 })).toEqual({
      level: "info",
      time: TIME,
      err: shown,
      after: 1,
      msg: "message",
    });
  });
});

test("a line for a terminal has the local time, the level, the message and the fields", () => {
  const fields = { url: "http://[::1]:3000/", n: 1, reason: "no space\n", list: ["a"], none: undefined };
  expect(formatText("info", fields, "listening")).toMatch(
    /^\d\d:\d\d:\d\d info {2}listening url="http:\/\/\[::1\]:3000\/" n=1 reason="no space\\n" list=\["a"\]\n$/,
  );
  const err = new Error("\x1b[31m", { cause: new Error("inner") });
  const line = formatText("error", { "\u202e": "\u2028", err }, "it \x9b failed");
  expect(line).toMatch(
    /error it <U\+009B> failed <U\+202E>="\\u2028" err="Error: \\u001b\[31m at .* caused by: Error: inner at .*"\n$/,
  );
  expect(line.slice(0, -1)).not.toMatch(UNSAFE);
});
