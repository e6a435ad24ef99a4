/**
 * Runs `bun test` with the given arguments, then lists the skipped tests by reason. `npm test` and `npm run test:system` use it.
 * Fails where `bun test` fails, and where a test is skipped without a printed reason. With TODO_TEST_ALLOWED_SKIPS,
 * which holds the beginning of one reason per line, it also fails where a test is skipped for any other reason.
 */

const allowed = process.env.TODO_TEST_ALLOWED_SKIPS?.split("\n");

const child = Bun.spawn(["bin/bun", "test", ...process.argv.slice(2)], {
  stdin: "ignore",
  stdout: "inherit",
  stderr: "pipe",
});
// Ctrl-C also reaches the child. It ends by itself, and its summary is still printed.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));

/** The files with a skipped test, and by reason, the files that printed it. */
const skipping = new Set<string>();
const reasons = new Map<string, Set<string>>();
let file = "";
let rest = "";
const decoder = new TextDecoder();
for await (const chunk of child.stderr) {
  process.stderr.write(chunk);
  const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) read(line);
}

const code = (await child.exited) ?? 1;
const failures = report();
process.exitCode = code === 0 && failures > 0 ? 1 : code;

function read(line: string): void {
  // The summary repeats skipped tests without their file.
  if (/^\d+ tests skipped:$/.test(line)) file = "";
  file = /^(\S+\.test\.ts):$/.exec(line)?.[1] ?? file;
  if (line.startsWith("(skip) ") && file !== "") skipping.add(file);
  const reason = /^skipped: (.+)$/.exec(line)?.[1];
  if (reason !== undefined) reasons.set(reason, (reasons.get(reason) ?? new Set()).add(file));
}

/** Prints the skips by reason; returns how many of them make the run fail. */
function report(): number {
  const explained = new Set([...reasons.values()].flatMap((files) => [...files]));
  const unexplained = [...skipping].filter((name) => !explained.has(name));
  const forbidden = [...reasons.keys()].filter(
    (reason) => allowed?.some((start) => reason.startsWith(start)) === false,
  );
  if (reasons.size > 0) process.stderr.write("\nSkipped tests by reason:\n");
  for (const [reason, files] of reasons) process.stderr.write(`- ${reason}: ${[...files].join(", ")}\n`);
  for (const name of unexplained) process.stderr.write(`(fail) ${name} skips a test without a reason\n`);
  for (const reason of forbidden)
    process.stderr.write(`(fail) tests may not be skipped here because ${reason}\n`);
  return unexplained.length + forbidden.length;
}

export {};
