/** The samples of a text in the Prometheus format 0.0.4, by name and labels. */
export type Samples = ReadonlyMap<string, number>;

/** Throws for a line that violates the format, and for a duplicate series. */
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

export function labelsOf(series: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...series.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, name = "", value = ""]) => [name, value]),
  );
}

/** Returns how much each series of the service has changed. Sums and buckets are left out, because they depend on the clock. */
export function moved(before: Samples, after: Samples): Readonly<Record<string, number>> {
  const changes = [...after].map(([series, value]) => [series, value - (before.get(series) ?? 0)] as const);
  return Object.fromEntries(
    changes.filter(
      ([series, change]) => change !== 0 && /^todo_(?!js_)/.test(series) && !/_(?:sum|bucket)\b/.test(series),
    ),
  );
}
