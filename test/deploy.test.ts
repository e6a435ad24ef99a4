import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { ALL_SETTINGS, getVariables } from "../src/config/settings.ts";

test("every variable that deploy/ sets is a setting", async () => {
  const known: readonly string[] = ALL_SETTINGS.flatMap(getVariables);
  const files = ["Containerfile", "compose.yaml", "compose.home.yaml"];
  for (const name of [...files, "todo-service.service", "todo-service@.service"]) {
    const text = await readFile(fileURLToPath(new URL(`../deploy/${name}`, import.meta.url)), "utf8");
    for (const [variable] of text.matchAll(/\bTODO_[A-Z_]+/g)) expect(known).toContain(variable);
  }
});
