import { expect, test } from "bun:test";
import { join } from "node:path";
import { exports as entries } from "../package.json" with { type: "json" };
import { ROOT, run } from "./command.ts";

test.each(Object.entries(entries).filter(([, entry]) => entry.default === "./bin/needs-bun.js"))(
  "importing each name of %s in Node fails with a sentence that says to use Bun",
  async (path, entry) => {
    const names = Object.keys(await import(join(ROOT, entry.bun)));
    const program = `import { ${names.join(", ")} } from "todo-service${path.slice(1)}";`;
    await using node = run(["node", "--input-type=module", "-e", program]);
    expect(await node.exited).toBe(1);
    expect(node.stderr()).toContain("Error: todo-service runs on Bun, not on Node.");
  },
);
