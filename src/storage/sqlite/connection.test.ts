import { expect, test } from "bun:test";
import { connect } from "./connection.ts";

test("connect rejects a database whose writes are not durable", () => {
  // SQLite keeps a database without a name in memory.
  expect(() => connect("")).toThrow(
    "SQLite cannot make writes durable there (journal mode memory, synchronous 2): use a local disk",
  );
});
