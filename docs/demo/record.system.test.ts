import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { whyNoBrowser } from "../../test/chromium.ts";
import { freePort } from "../../test/free-port.ts";
import { skipFor } from "../../test/skip.ts";
import { temporaryFolder } from "../../test/temporary.ts";
import { whyNoTerminal } from "../../test/terminal.ts";
import { record } from "./record.ts";

const folder = temporaryFolder();

test.skipIf(skipFor(whyNoBrowser ?? whyNoTerminal))(
  "the animation of the README can be recorded from a real run",
  async () => {
    const frames = await record({ folder, port: await freePort() });
    expect(frames.length).toBeGreaterThan(100);
    const { path = "" } = frames.at(-1) ?? {};
    expect((await readFile(path)).subarray(1, 4).toString()).toBe("PNG");
  },
  600_000,
);

test("the animation of the README repeats, and has at most 1 MB", async () => {
  const gif = await readFile(new URL("../demo.gif", import.meta.url));
  expect(gif.subarray(0, 6).toString("latin1")).toBe("GIF89a");
  // This extension makes programs repeat the animation forever.
  expect(gif.includes(Buffer.from("NETSCAPE2.0\x03\x01\x00\x00\x00", "latin1"))).toBe(true);
  expect(gif.length).toBeLessThan(1_000_000);
});
