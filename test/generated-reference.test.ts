import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { getVariables, SERVE_SETTINGS } from "../src/config/settings.ts";
import { run } from "./command.ts";

const read = (path: string): Promise<string> => readFile(new URL(`../${path}`, import.meta.url), "utf8");

test("the reference does not depend on the terminal or the environment variables", async () => {
  for (const COLUMNS of ["40", "200"]) {
    const variables = { COLUMNS, FORCE_COLOR: "1", TODO_PORT: "1", LANG: "de_DE.UTF-8" };
    await using check = run(["bin/bun", "docs/build.ts", "--check"], variables);
    expect([await check.exited, check.stderr()]).toEqual([0, ""]);
  }
});

test("the reference of the configuration has a row for every setting", async () => {
  const page = await read("docs/reference/configuration.md");
  for (const setting of SERVE_SETTINGS) {
    const { flag = getVariables(setting)[0] } = setting;
    expect(page).toContain(`\`${flag}\``);
  }
});
