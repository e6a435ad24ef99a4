/** Two kinds of trials that should take the same time. */
export type Kind = "early" | "late";

export interface Trial {
  readonly kind: Kind;
  /** A duration in any unit. */
  readonly time: number;
}

export interface Comparison {
  /** Welch's t: positive if the late kind takes longer. */
  readonly t: number;
  /** The mean time of the late kind divided by that of the early kind. */
  readonly ratio: number;
}

/** The slowest tenth is noise of the garbage collector and the scheduler, so both kinds lose it at the same limit. */
const KEPT = 0.9;

/** Compares the times of both kinds. */
export function compareTimes(trials: readonly Trial[]): Comparison {
  const times = Float64Array.from(trials, ({ time }) => time).sort();
  const most = times[Math.floor(times.length * KEPT)] ?? 0;
  const of = (wanted: Kind) => moments(trials.filter(({ kind, time }) => kind === wanted && time <= most));
  const [early, late] = [of("early"), of("late")];
  const error = Math.sqrt(late.variance / late.count + early.variance / early.count);
  return { t: (late.mean - early.mean) / error, ratio: late.mean / early.mean };
}

function moments(samples: readonly Trial[]) {
  const count = samples.length;
  const mean = samples.reduce((sum, { time }) => sum + time, 0) / count;
  const variance = samples.reduce((sum, { time }) => sum + (time - mean) ** 2, 0) / (count - 1);
  return { count, mean, variance };
}
