import { expect, test } from "bun:test";
import fc from "fast-check";
import { LogLimiter } from "./log-limiter.ts";

function limited() {
  const lines: object[] = [];
  const waiting: { readonly run: () => void; readonly ms: number }[] = [];
  const limiter = new LogLimiter((run, ms) => waiting.push({ run, ms }));
  return {
    limiter,
    lines,
    write: limiter.topic((fields) => lines.push(fields)),
    waiting,
    tick: (): void => waiting.shift()?.run(),
    newLines: (): object[] => lines.splice(0),
  };
}

test("LogLimiter writes the first line of each source immediately, and a summary with the latest fields every ten seconds", () => {
  const { write, waiting, tick, newLines } = limited();
  for (const port of [1, 2, 3]) write("a", { port });
  write("b", { port: 4 });
  expect(newLines()).toEqual([{ port: 1 }, { port: 4 }]);
  expect(waiting.map(({ ms }) => ms)).toEqual([10_000]);
  for (const interval of [2, 3]) {
    tick();
    expect(newLines()).toEqual(interval === 2 ? [{ port: 3, times: 2 }] : [{ port: 6, times: interval }]);
    for (const port of [4, 5, 6]) write("a", { port });
  }
});

test("LogLimiter writes a line immediately again after ten seconds without one", () => {
  const { write, waiting, tick, newLines } = limited();
  write("a", { port: 1 });
  write("a", { port: 2 });
  tick();
  tick();
  expect(waiting).toEqual([]);
  newLines();
  write("a", { port: 3 });
  expect(newLines()).toEqual([{ port: 3 }]);
  expect(waiting.length).toBe(1);
});

test("LogLimiter counts sources beyond 100 together", () => {
  const { write, tick, newLines } = limited();
  for (const round of [1, 2]) {
    for (let source = 0; source < 1000; source++) write(`${source}`, { source, round });
  }
  expect(newLines()).toEqual(Array.from({ length: 100 }, (_, source) => ({ source, round: 1 })));
  tick();
  const known = Array.from({ length: 100 }, (_, source) => ({ source, round: 2, times: 1 }));
  expect(newLines()).toEqual([...known, { others: true, times: 1800 }]);
});

test("LogLimiter counts each topic separately", () => {
  const { limiter, write, tick, newLines } = limited();
  const others: object[] = [];
  const writeOther = limiter.topic((fields) => others.push(fields));
  for (let source = 0; source < 1000; source++) write(`${source}`, {});
  writeOther("0", { topic: "other" });
  expect(others).toEqual([{ topic: "other" }]);
  newLines();
  writeOther("0", { topic: "other" });
  tick();
  expect(newLines()).toEqual([{ others: true, times: 900 }]);
  expect(others).toEqual([{ topic: "other" }, { topic: "other", times: 1 }]);
});

test("LogLimiter writes pending summaries when it is flushed", () => {
  const { limiter, write, newLines } = limited();
  for (const port of [1, 2]) write("a", { port });
  newLines();
  limiter.flush();
  expect(newLines()).toEqual([{ port: 2, times: 1 }]);
  limiter.flush();
  expect(newLines()).toEqual([]);
});

test("LogLimiter counts every line exactly once, and writes at most 201 lines in ten seconds", () => {
  const event = fc.oneof(
    { weight: 50, arbitrary: fc.nat(150) },
    { weight: 1, arbitrary: fc.constant("tick") },
  );
  fc.assert(
    fc.property(fc.array(event, { size: "max", maxLength: 2000 }), (events) => {
      const { limiter, write, tick, lines } = limited();
      const counted = (): number =>
        lines.reduce((sum, line) => sum + ("times" in line ? Number(line.times) : 1), 0);
      let written = 0;
      let linesBefore = 0;
      for (const event of events) {
        if (typeof event === "number") {
          write(`${event}`, {});
          written++;
          continue;
        }
        tick();
        expect(lines.length - linesBefore).toBeLessThanOrEqual(201);
        linesBefore = lines.length;
        expect(counted()).toBe(written);
      }
      limiter.flush();
      expect(counted()).toBe(written);
    }),
  );
});
