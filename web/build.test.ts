import { expect, setDefaultTimeout, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "./build.ts";

// The renderer is compressed as small as it can be.
setDefaultTimeout(60_000);

const BUILT = fileURLToPath(new URL("built/", import.meta.url));

test("web/built is what npm run build:web makes of web/", async () => {
  const built = await build();
  expect((await readdir(BUILT)).toSorted()).toEqual([...built.keys()].toSorted());
  for (const [name, bytes] of built) {
    const isSame = (await readFile(BUILT + name)).equals(bytes);
    expect([name, isSame ? "fresh" : "stale: npm run build:web"]).toEqual([name, "fresh"]);
  }
});
