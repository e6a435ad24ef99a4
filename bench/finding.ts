/** What an experiment gives. */

/** A figure with all the readings behind it; the figure is their median unless it says "adds", then their maximum. */
export interface Finding {
  readonly name: string;
  readonly figure: number;
  readonly readings: readonly number[];
}

export interface Experiment {
  readonly name: string;
  /** How much is stored or repeated: in a run, and in a quick one. */
  readonly size: number;
  readonly quickSize: number;
  run(size: number, folder: string): Promise<Finding[]>;
}

export const finding = (name: string, readings: readonly number[]): Finding => ({
  name,
  figure: median(readings),
  readings,
});

/** Each reading over the one that was taken beside it. */
export const ratios = (of: readonly number[], to: readonly number[]): number[] =>
  of.map((value, at) => value / (to[at] ?? Number.NaN));

export function median(readings: readonly number[]): number {
  return quantile(readings, 0.5);
}

export function quantile(readings: readonly number[], q: number): number {
  const sorted = readings.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] ?? Number.NaN;
  const high = sorted[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}
