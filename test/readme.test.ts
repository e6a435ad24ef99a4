import { expect, test } from "bun:test";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import contract from "../openapi.json" with { type: "json" };
import { SETTINGS } from "../src/cli/settings.ts";
import { run, runTodo } from "./command.ts";
import { skipFor } from "./skip.ts";
import { whyMissing } from "./tools.ts";

const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");

interface Block {
  readonly language: string;
  readonly text: string;
}

const blocks: readonly Block[] = [...readme.matchAll(/^```(\w*)\n(.*?)^```/gms)].map(
  ([, language = "", text = ""]) => ({ language, text }),
);

/** The shell blocks that send requests, each with the output shown below it. */
const shown = blocks.flatMap(({ language, text }, index) =>
  language === "sh" && text.startsWith("curl") ? [[text, blocks[index + 1]?.text ?? ""] as const] : [],
);

async function pasted(line: string): Promise<string> {
  const shell = run(["sh", "-c", line.replace(/^curl /, "curl -sS ")]);
  await shell.exited;
  return shell.stdout() + shell.stderr();
}

test("the README's first command starts the service", () => {
  expect(blocks[0]).toEqual({ language: "sh", text: "npm ci && npm start\n" });
});

test.skipIf(skipFor(whyMissing("curl")))("the README's commands print what it shows", async () => {
  await using server = runTodo(["serve", "--port", "0"]);
  const url = await server.url;
  expect(shown.length).toBeGreaterThanOrEqual(2);
  for (const [line, output] of shown) {
    expect(`${await pasted(line.replaceAll("http://127.0.0.1:3000", url))}\n`).toBe(output);
  }
});

test("the README shows what the first start prints", async () => {
  await using server = runTodo(["serve", "--port", "0"]);
  const url = await server.url;
  while (!server.stderr().includes("/admin/")) await Bun.sleep(5);
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
  const picture =
    blocks
      .find(({ text }) => text.startsWith("curl -H"))
      ?.text.trimEnd()
      .split("\n") ?? [];
  expect(picture.map(masked)).toEqual(lines.map(masked));
  expect(await Promise.all(lines.map(pasted))).toEqual(["demo", "Hello, admin!"]);
});

test("the README lists the settings of the command", () => {
  const section = readme.slice(readme.indexOf("## Settings"), readme.indexOf("## Running it"));
  const rows = [...section.matchAll(/^\| (.*?) ?\| (`.*?`) \| (.*?) ?\| /gm)].map(
    ([, flag, variables, value]) => ({
      flag: flag?.trim().replaceAll("`", ""),
      variables: variables?.replaceAll("`", ""),
      value: value?.trim().replaceAll("`", ""),
    }),
  );
  expect(rows).toEqual(
    Object.values(SETTINGS).map((setting) => ({
      flag: "flag" in setting ? setting.flag.replace(/ <.*/, "") : "",
      variables: setting.variables.join(", "),
      value: "default" in setting ? setting.default : "",
    })),
  );
});

test("the README lists the error codes of openapi.json", () => {
  const section = readme.slice(readme.indexOf("### Errors"), readme.indexOf("## Who may pass"));
  const codes = [...section.matchAll(/^\| \d{3} \| (.*?) \|/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, code]) => code),
  );
  const documented: readonly string[] = contract.components.schemas.Problem.properties.code.enum;
  expect(codes.toSorted()).toEqual(documented.toSorted());
});

test("the README's code runs unchanged", async () => {
  const example = blocks.find(({ text }) => text.includes("createService("))?.text ?? "";
  const folder = await mkdtemp(join(tmpdir(), "todo-readme-"));
  try {
    const clients = join(folder, "clients");
    await Bun.write(clients, `alice:${new Bun.CryptoHasher("sha256").update("secret").digest("hex")}\n`);
    const code = example
      .replace('"clients"', JSON.stringify(clients))
      .replace("port: 3000", "port: 0")
      .replace(/^listen\(/m, "const { url } = listen(");
    const ask = 'await fetch(url + "/api/whoami", { headers: { authorization: "Bearer secret" } })';
    const script = run([
      process.execPath,
      "-e",
      `${code}\nconsole.write(await (${ask}).text()); process.exit();`,
    ]);
    expect([await script.exited, script.stdout(), script.stderr()]).toEqual([0, "alice", ""]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("the README's client runs unchanged", async () => {
  const example = blocks.find(({ text }) => text.includes("new TodoApi("))?.text ?? "";
  await using server = runTodo(["serve", "--port", "0"]);
  const code = example.replace("http://127.0.0.1:3000", await server.url);
  await using script = run([process.execPath, "--no-env-file", "-e", code]);
  expect([await script.exited, script.stderr()]).toEqual([0, ""]);
  expect(script.stdout()).toMatch(/"connected"[\s\S]*"updated"/);
});
