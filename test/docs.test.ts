import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import movedPages from "../site/moved-pages.json" with { type: "json" };
import { ROOT, run } from "./command.ts";
import { anchorsIn, isCommand, markerOf, readPage, readPages, relativeLinks, runPage } from "./docs.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { isTool, whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const pages = readPages();
const README = readPage("README.md");

test("docs/README.md links to every page", () => {
  const index = readPage("docs/README.md");
  const linked = relativeLinks(index.text).map((link) => join("docs", link.replace(/#.*/, "")));
  const missing = pages
    .map(({ path }) => path)
    .filter((path) => path !== index.path && !linked.includes(path));
  expect(missing).toEqual(["README.md"].filter((path) => !linked.includes(path)));
});

test("each moved page leads to a page and a heading, and is not a page itself", () => {
  const problems = Object.entries(movedPages).flatMap(([from, to]) => {
    const [page = "", anchor] = to.split("#");
    const file = join(ROOT, `${page}.md`);
    if (existsSync(join(ROOT, `${from}.md`))) return [`${from} exists`];
    if (!existsSync(file)) return [`${to} does not exist`];
    return anchor === undefined || anchorsIn(readFileSync(file, "utf8")).has(anchor)
      ? []
      : [`${to}: no heading`];
  });
  expect(problems).toEqual([]);
});

test("every page of docs/ starts with a title and a sentence about its purpose", () => {
  for (const { path, text } of pages.filter((page) => page.path.startsWith("docs/")))
    expect([path, /^# .+\n\n(?:<!-- .+ -->\n\n)?[A-Z`*].+\n/.test(text)]).toEqual([path, true]);
});

test("every marker of a block is known, and a block that does not run has a reason", () => {
  for (const { path, blocks } of pages)
    for (const block of blocks) {
      const { marker, line } = block;
      if (marker === undefined) continue;
      const tool = markerOf(block, "needs");
      const isKnown =
        marker === "crash" ||
        /^markdownlint-/.test(marker) ||
        (tool !== undefined && isTool(tool)) ||
        isRunBy(markerOf(block, "run by"), path) ||
        ["not run", "exits", "waits", "example"].some((name) => markerOf(block, name) !== undefined);
      expect([`${path}:${line}`, isKnown]).toEqual([`${path}:${line}`, true]);
      const reason = isCommand(block) ? markerOf(block, "not run") : undefined;
      if (reason !== undefined) process.stderr.write(`not run: ${path}:${line}: ${reason}\n`);
    }
});

// The system suite runs the commands of the other pages.
test.skipIf(skipFor(whyMissing("curl")))("the README's commands work and print what it shows", async () => {
  expect(await runPage(README)).toEqual([]);
});

test("the README begins with the commands that start the service and create a to-do", () => {
  const [start, create] = README.blocks;
  expect(start?.text).toMatch(/^git clone \S+ && cd todo-service\nnpm ci --omit=dev && npm start\n$/);
  expect(create?.text).toContain("/api/todos");
});

test.skipIf(skipFor(whyMissing("curl")))("the README shows the output of the first start", async () => {
  await using server = serve();
  const url = await server.url;
  await until(() => server.stderr().includes("/admin/'"), "the server has printed the commands");
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
  const shown = README.blocks.find(({ text }) => text.includes("-u 'admin:"))?.text ?? "";
  expect(masked(shown)).toBe(masked(`${lines.join("\n")}\n`));
  for (const answer of await Promise.all(lines.map(pasted))) expect(README.text).toContain(`\`${answer}\``);
});

async function pasted(line: string): Promise<string> {
  await using shell = run(["sh", "-c", line.replace(/^curl /, "curl -sS ")]);
  await shell.exited;
  return (shell.stdout() + shell.stderr()).trimEnd();
}

/** Whether the test that a marker names reads this page. */
const isRunBy = (file: string | undefined, path: string): boolean =>
  file !== undefined && existsSync(join(ROOT, file)) && readFileSync(join(ROOT, file), "utf8").includes(path);
