/** Figures and their statistics. */

/** A figure with all the readings behind it. */
export interface Measurement {
  readonly name: string;
  readonly value: number;
  readonly readings: readonly number[];
}

/** How thorough a run is: a quick one only shows that everything works. */
export type Mode = "whole" | "quick";

/** Something that is measured of the product alone. */
export interface Experiment {
  readonly name: string;
  /** @param folder holds the files that servers read and write */
  run(mode: Mode, folder: string): Promise<readonly Measurement[]>;
}

/** Returns an experiment that has one size for each mode. */
export const experiment = <Size>(
  name: string,
  sizes: Readonly<Record<Mode, Size>>,
  run: (size: Size, folder: string) => Promise<Measurement[]>,
): Experiment => ({ name, run: (mode, folder) => run(sizes[mode], folder) });

/** Returns a measurement whose value is the median of its readings. */
export const medianOf = (name: string, readings: readonly number[]): Measurement => ({
  name,
  value: median(readings),
  readings,
});

/** Returns a measurement whose value is the highest of its readings. */
export const maximumOf = (name: string, readings: readonly number[]): Measurement => ({
  name,
  value: Math.max(...readings),
  readings,
});

/** Returns each reading divided by the one taken beside it. */
export const ratios = (numerators: readonly number[], denominators: readonly number[]): number[] =>
  numerators.map((value, index) => value / (denominators[index] ?? Number.NaN));

export function median(readings: readonly number[]): number {
  return quantile(readings, 0.5);
}

export function quantile(readings: readonly number[], q: number): number {
  const sorted = readings.toSorted((a, b) => a - b);
  const index = (sorted.length - 1) * q;
  const low = sorted[Math.floor(index)] ?? Number.NaN;
  const high = sorted[Math.ceil(index)] ?? Number.NaN;
  return low + (high - low) * (index - Math.floor(index));
}
