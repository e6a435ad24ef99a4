import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import type { KeyChange } from "../../credential/key-rules.ts";
import { ServedKeys } from "./served-keys.ts";

const MINUTE = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** Keys that list nothing, and the uses that they have written while the store is reachable. */
class Keys extends ServedKeys {
  readonly written: Record<string, number>[] = [];
  isDown = false;

  latestUseOf(id: string): number | undefined {
    return this.withLatestUse({ id, name: id, scope: "write", createdAt: 0 }).lastUsedAt;
  }

  protected async change(change: KeyChange): Promise<boolean> {
    if (this.isDown) throw new Error("the store is away");
    if (change.type === "recordUses") this.written.push(Object.fromEntries(change.uses));
    return true;
  }
}

test("ServedKeys write all uses one minute after the first use", () => {
  const keys = new Keys();
  keys.recordUse("a", 1);
  jest.advanceTimersByTime(MINUTE - 1);
  keys.recordUse("a", 2);
  keys.recordUse("b", 3);
  expect(keys.written).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(keys.written).toEqual([{ a: 2, b: 3 }]);
  keys.recordUse("a", 4);
  jest.advanceTimersByTime(MINUTE);
  expect(keys.written).toEqual([{ a: 2, b: 3 }, { a: 4 }]);
});

test("ServedKeys write nothing if no key was used", async () => {
  const keys = new Keys();
  await keys.flush();
  expect(keys.written).toEqual([]);
});

test("ServedKeys retry failed writes with the latest use of each key", async () => {
  const keys = new Keys();
  keys.isDown = true;
  keys.recordUse("a", 1);
  keys.recordUse("b", 1);
  const failing = keys.flush();
  keys.recordUse("a", 2);
  await failing;
  expect(keys.latestUseOf("b")).toBe(1);
  keys.isDown = false;
  jest.advanceTimersByTime(MINUTE);
  expect(keys.written).toEqual([{ a: 2, b: 1 }]);
});
