import { expect, test } from "bun:test";
import { abortOnReturn, linkAbort } from "./abort.ts";

function countListeners() {
  const { signal } = new AbortController();
  const listeners = new Set<unknown>();
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners.add(args[1]);
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners.delete(args[1]);
    removeEventListener.apply(signal, args);
  };
  return { signal, count: () => listeners.size };
}

test("linkAbort aborts with the other signal, also with one that was aborted before", () => {
  const controller = new AbortController();
  const { signal } = linkAbort(controller.signal);
  expect(signal.aborted).toBe(false);
  controller.abort();
  expect(signal.aborted).toBe(true);
  expect(linkAbort(controller.signal).signal.aborted).toBe(true);
});

test("linkAbort stops listening to the other signal when it is aborted", () => {
  const { signal, count } = countListeners();
  const { abort } = linkAbort(signal);
  expect(count()).toBe(1);
  abort();
  expect([count(), signal.aborted]).toEqual([0, false]);
});

test("abortOnReturn stops listening when its generator ends, however it ends", async () => {
  const { signal, count } = countListeners();
  const ends = [
    async (all: AsyncGenerator<number, void>) => Array.fromAsync(all),
    async (all: AsyncGenerator<number, void>) => all.return(),
    async (all: AsyncGenerator<number, void>) => all.throw(new Error("left")).catch(() => {}),
  ];
  for (const end of ends) {
    const all = abortOnReturn(signal, async function* () {
      yield 1;
      yield 2;
    });
    await all.next();
    expect(count()).toBe(1);
    await end(all);
    expect(count()).toBe(0);
  }
});
