import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { LogLimiter } from "./log-limiter.ts";

/** A limiter whose time passes only when the test says so, and the lines that it has written. */
function limited() {
  const lines: object[] = [];
  const waiting: { readonly run: () => void; readonly ms: number }[] = [];
  const limiter = new LogLimiter((run, ms) => waiting.push({ run, ms }));
  return {
    limiter,
    lines,
    write: limiter.topic((fields) => lines.push(fields)),
    waiting,
    /** Lets the next scheduled time come. */
    tick: (): void => waiting.shift()?.run(),
    /** Returns the lines since the last call. */
    taken: (): object[] => lines.splice(0),
  };
}

describe("LogLimiter", () => {
  test("writes the first line of each source at once, and one summary with the latest fields in ten seconds", () => {
    const { write, waiting, tick, taken } = limited();
    for (const port of [1, 2, 3]) write("a", { port });
    write("b", { port: 4 });
    expect(taken()).toEqual([{ port: 1 }, { port: 4 }]);
    expect(waiting.map(({ ms }) => ms)).toEqual([10_000]);
    tick();
    expect(taken()).toEqual([{ port: 3, times: 2 }]);
  });

  test("writes one summary in ten seconds while the lines continue", () => {
    const { write, tick, taken } = limited();
    write("a", {});
    taken();
    for (let interval = 1; interval <= 5; interval++) {
      for (let time = 0; time < interval; time++) write("a", {});
      expect(taken()).toEqual([]);
      tick();
      expect(taken()).toEqual([{ times: interval }]);
    }
  });

  test("writes a line at once again after ten seconds without one", () => {
    const { write, waiting, tick, taken } = limited();
    write("a", { port: 1 });
    write("a", { port: 2 });
    tick();
    tick();
    expect(waiting).toEqual([]);
    taken();
    write("a", { port: 3 });
    expect(taken()).toEqual([{ port: 3 }]);
    expect(waiting.length).toBe(1);
  });

  test("counts sources beyond 100 together", () => {
    const { write, tick, taken } = limited();
    for (const round of [1, 2]) {
      for (let source = 0; source < 1000; source++) write(`${source}`, { source, round });
    }
    expect(taken()).toEqual(Array.from({ length: 100 }, (_, source) => ({ source, round: 1 })));
    tick();
    const known = Array.from({ length: 100 }, (_, source) => ({ source, round: 2, times: 1 }));
    expect(taken()).toEqual([...known, { others: true, times: 1800 }]);
  });

  test("keeps topics apart", () => {
    const { limiter, write, tick, taken } = limited();
    const others: object[] = [];
    const writeOther = limiter.topic((fields) => others.push(fields));
    for (let source = 0; source < 1000; source++) write(`${source}`, {});
    writeOther("0", { topic: "other" });
    expect(others).toEqual([{ topic: "other" }]);
    taken();
    writeOther("0", { topic: "other" });
    tick();
    expect(taken()).toEqual([{ others: true, times: 900 }]);
    expect(others).toEqual([{ topic: "other" }, { topic: "other", times: 1 }]);
  });

  test("writes the summaries early when it is flushed", () => {
    const { limiter, write, taken } = limited();
    for (const port of [1, 2]) write("a", { port });
    taken();
    limiter.flush();
    expect(taken()).toEqual([{ port: 2, times: 1 }]);
    limiter.flush();
    expect(taken()).toEqual([]);
  });

  test("counts every line exactly once, and writes at most 201 lines in ten seconds", () => {
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
});
