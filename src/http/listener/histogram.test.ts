import { expect, test } from "bun:test";
import { Histogram } from "./histogram.ts";

test("a histogram prints cumulative buckets, the sum and the count of each series", () => {
  const histogram = new Histogram({ name: "h", help: "What it counts.", buckets: [1, 2.5] });
  expect(String(histogram)).toBe("# HELP h What it counts.\n# TYPE h histogram\n");
  const series = histogram.series({ route: "/", method: "GET" });
  for (const value of [0.5, 1, 2, 3]) series.observe(value);
  expect(String(histogram).split("\n").slice(2)).toEqual([
    'h_bucket{route="/",method="GET",le="1"} 2',
    'h_bucket{route="/",method="GET",le="2.5"} 3',
    'h_bucket{route="/",method="GET",le="+Inf"} 4',
    'h_sum{route="/",method="GET"} 6.5',
    'h_count{route="/",method="GET"} 4',
    "",
  ]);
});

test("a histogram escapes label values", () => {
  const histogram = new Histogram({ name: "h", help: "What it counts.", buckets: [] });
  histogram.series({ path: 'a"b\\c\nd' });
  expect(String(histogram)).toContain('h_count{path="a\\"b\\\\c\\nd"} 0\n');
});
