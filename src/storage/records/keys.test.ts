import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import type { KeyChange } from "../../credential/key-rules.ts";
import { ServedKeys } from "./keys.ts";

const MINUTE = 60_000;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** Keys of one client, and the uses that they have written while the store is reachable. */
function start() {
  const source = {
    written: [] as Record<string, number>[],
    isDown: false,
    find: () => undefined,
    stored: () => [
      { id: "b", name: "b", scope: "write", createdAt: 0, tokenHash: new Uint8Array() } as const,
    ],
    async change(change: KeyChange): Promise<boolean> {
      if (source.isDown) throw new Error("the store is away");
      if (change.type === "recordUses") source.written.push(Object.fromEntries(change.uses));
      return true;
    },
  };
  return { source, keys: new ServedKeys(source) };
}

test("ServedKeys write all uses one minute after the first use", () => {
  const { source, keys } = start();
  keys.recordUse("a", 1);
  jest.advanceTimersByTime(MINUTE - 1);
  keys.recordUse("a", 2);
  keys.recordUse("b", 3);
  expect(source.written).toEqual([]);
  jest.advanceTimersByTime(1);
  expect(source.written).toEqual([{ a: 2, b: 3 }]);
  keys.recordUse("a", 4);
  jest.advanceTimersByTime(MINUTE);
  expect(source.written).toEqual([{ a: 2, b: 3 }, { a: 4 }]);
});

test("ServedKeys write nothing if no key was used", async () => {
  const { source, keys } = start();
  await keys.flush();
  expect(source.written).toEqual([]);
});

test("ServedKeys retry failed writes with the latest use of each key", async () => {
  const { source, keys } = start();
  source.isDown = true;
  keys.recordUse("a", 1);
  keys.recordUse("b", 1);
  const failing = keys.flush();
  keys.recordUse("a", 2);
  await failing;
  expect((await keys.list())[0]?.lastUsedAt).toBe(1);
  source.isDown = false;
  jest.advanceTimersByTime(MINUTE);
  expect(source.written).toEqual([{ a: 2, b: 1 }]);
});
