import { Presets, SingleBar } from "cli-progress";
import type { TaskOptions } from "../../storage/maintenance.ts";

/**
 * Shows a progress bar on standard error during the work, if that is a terminal, and removes it at the end.
 * @param isWanted false to show no bar even on a terminal
 */
export async function withProgressBar<T>(
  what: string,
  isWanted: boolean,
  work: (onProgress: TaskOptions["onProgress"]) => Promise<T>,
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
