import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { run, runTodo } from "./command.ts";
import { readPage } from "./docs.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

const { text: readme, blocks } = readPage("README.md");
const results = readFileSync(new URL("../bench/results.md", import.meta.url), "utf8");

test("the README begins with the commands that start the service, keep its data and run its tests", () => {
  const commands = blocks.map(({ language, text }) => [language, text]);
  expect(commands.slice(0, 3)).toEqual([
    ["sh", "npm ci && npm start\n"],
    ["sh", "npm start -- --store sqlite:todos.db\n"],
    ["sh", "npm ci && npm test\n"],
  ]);
});

test.skipIf(skipFor(whyMissing("curl")))("the README shows the output of the first start", async () => {
  await using server = runTodo(["serve", "--port", "0"]);
  const url = await server.url;
  while (!server.stderr().includes("/admin/'")) await Bun.sleep(5);
  const masked = (text: string): string =>
    text
      .replaceAll(url, "URL")
      .replaceAll("http://127.0.0.1:3000", "URL")
      .replace(/todo_\w{49}/g, "TOKEN")
      .replace(/admin:\w{24}/g, "admin:PASSWORD");
  const lines = server
    .stderr()
    .split("\n")
    .filter((line) => line.startsWith("curl"));
  const shown = blocks.find(({ text }) => text.includes("-u 'admin:"))?.text ?? "";
  expect(masked(shown)).toBe(masked(`${lines.join("\n")}\n`));
  for (const answer of await Promise.all(lines.map(pasted))) expect(readme).toContain(`\`${answer}\``);
});

async function pasted(line: string): Promise<string> {
  await using shell = run(["sh", "-c", line.replace(/^curl /, "curl -sS ")]);
  await shell.exited;
  return (shell.stdout() + shell.stderr()).trimEnd();
}

/** Returns the cells of the rows of a Markdown table, without its head. */
const rowsIn = (text: string): readonly (readonly string[])[] =>
  [...text.matchAll(/^\| (.*) \|$/gm)].map(([, row = ""]) => row.split("|").map((cell) => cell.trim()));

/** Returns the text below a heading of the second level. */
const section = (text: string, heading: string): string =>
  text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";

test("the CPU times in the README match bench/results.md", () => {
  const [head = [], , ...rows] = rowsIn(section(readme, "Speed"));
  expect(rows.length).toBeGreaterThan(2);
  for (const [workload = "", ...figures] of rows) {
    const measured = new Map(rowsIn(section(results, workload)).map(([server = "", time]) => [server, time]));
    expect([workload, ...figures]).toEqual([
      workload,
      ...head.slice(1).map((server) => measured.get(server) ?? "not measured"),
    ]);
  }
});

test("the README counts the targets of bench/results.md and the missed ones", () => {
  const targets = rowsIn(section(results, "Targets")).filter(([, , , outcome]) =>
    /met|missed/.test(outcome ?? ""),
  );
  const missed = targets.filter(([, , , outcome]) => outcome === "**missed**");
  expect(section(readme, "Speed")).toContain(`${missed.length} of ${targets.length} targets were missed`);
});
