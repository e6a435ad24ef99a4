import { expect, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "./build.ts";

const BUILT = fileURLToPath(new URL("built/", import.meta.url));

test("web/built contains the output of npm run build:web", async () => {
  const built = await build();
  expect((await readdir(BUILT)).toSorted()).toEqual([...built.keys()].toSorted());
  for (const [name, bytes] of built) {
    const isSame = (await readFile(BUILT + name)).equals(bytes);
    expect([name, isSame ? "up to date" : "outdated: run npm run build:web"]).toEqual([name, "up to date"]);
  }
});
