import { Presets, SingleBar } from "cli-progress";
import type { Work } from "../storage/archive.ts";

/**
 * Draws a bar on standard error while the work goes on, where that is a terminal, and removes it in the end.
 * @param isWanted whether a bar is drawn at all
 */
export async function withBar<T>(
  what: string,
  isWanted: boolean,
  work: (onProgress: Work["onProgress"]) => Promise<T>,
): Promise<T> {
  if (!isWanted || !process.stderr.isTTY) return work(() => {});
  let bar: SingleBar | undefined;
  try {
    return await work((done, total) => {
      bar ??= startBar(what, total);
      bar.update(done);
    });
  } finally {
    bar?.stop();
  }
}

function startBar(what: string, total: number | undefined): SingleBar {
  const share = total === undefined ? "" : " {bar} {percentage}% | {eta_formatted} left |";
  const format = `${what}${share} {value} to-dos`;
  const bar = new SingleBar({ clearOnComplete: true, hideCursor: true, format }, Presets.shades_classic);
  bar.start(total ?? 0, 0);
  return bar;
}
