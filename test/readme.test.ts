import { expect, test } from "bun:test";
import { run } from "./command.ts";
import { readPage } from "./docs.ts";
import { serve } from "./server.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";
import { until } from "./until.ts";

const { text: readme, blocks } = readPage("README.md");

test("the README begins with the commands that start the service and create a to-do", () => {
  const [start, create] = blocks;
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
  const shown = blocks.find(({ text }) => text.includes("-u 'admin:"))?.text ?? "";
  expect(masked(shown)).toBe(masked(`${lines.join("\n")}\n`));
  for (const answer of await Promise.all(lines.map(pasted))) expect(readme).toContain(`\`${answer}\``);
});

async function pasted(line: string): Promise<string> {
  await using shell = run(["sh", "-c", line.replace(/^curl /, "curl -sS ")]);
  await shell.exited;
  return (shell.stdout() + shell.stderr()).trimEnd();
}
