import { expect, test } from "bun:test";
import { openDatabase } from "./open.ts";

test("openDatabase rejects a database whose writes are not durable", () => {
  // SQLite keeps a database without a name in memory.
  expect(() => openDatabase("", "shared")).toThrow(
    "SQLite cannot make writes durable there (journal mode memory, synchronous 2): use a local disk",
  );
});
