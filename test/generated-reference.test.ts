import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { referencePages } from "../docs/build.ts";
import { SETTINGS } from "../src/cli/settings.ts";
import { run } from "./command.ts";

const read = (name: string): Promise<string> =>
  readFile(new URL(`../docs/reference/${name}`, import.meta.url), "utf8");

test.each(Object.entries(referencePages()))(
  "docs/reference/%s equals the output of npm run docs",
  async (name, text) => {
    expect(await read(name)).toBe(text);
  },
);

test("the reference does not depend on the terminal or the environment variables", async () => {
  for (const COLUMNS of ["40", "200"]) {
    const variables = { COLUMNS, FORCE_COLOR: "1", TODO_PORT: "1", LANG: "de_DE.UTF-8" };
    await using check = run(["bin/bun", "docs/build.ts", "--check"], variables);
    expect([await check.exited, check.stderr()]).toEqual([0, ""]);
  }
});

test("the reference of the configuration has a row for every setting", async () => {
  const page = await read("configuration.md");
  for (const { variables } of Object.values(SETTINGS)) expect(page).toContain(`\`${variables[0]}\``);
});
