/** The samples of a text in Prometheus' format 0.0.4, by name and labels as they stand. */
export type Samples = ReadonlyMap<string, number>;

/** Throws for a line that is none of the format, and for a series that is there twice. */
export function parseExposition(text: string): Samples {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || /^# (?:HELP|TYPE) [a-z0-9_]+ ./.test(line)) continue;
    const [, series = "", value = ""] =
      /^([a-z0-9_]+(?:\{[a-z_]+="[^"\\]*"(?:,[a-z_]+="[^"\\]*")*\})?) (\S+)$/.exec(line) ?? [];
    if (series === "" || samples.has(series)) throw new Error(`no sample, or one again: ${line}`);
    samples.set(series, Number(value));
  }
  return samples;
}

/** The labels of a series. */
export function labelsOf(series: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...series.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, name = "", value = ""]) => [name, value]),
  );
}

/** By how much each series of the service's own has moved, without sums and buckets, for these depend on the clock. */
export function moved(before: Samples, after: Samples): Readonly<Record<string, number>> {
  const changes = [...after].map(([series, value]) => [series, value - (before.get(series) ?? 0)] as const);
  return Object.fromEntries(
    changes.filter(
      ([series, change]) => change !== 0 && /^todo_(?!js_)/.test(series) && !/_(?:sum|bucket)\b/.test(series),
    ),
  );
}
