import type { Observer } from "../src/http/observability/instrumentation.ts";

export function countRequests() {
  let waiting = 0;
  const observer: Observer = {
    route: () => ({
      waiting: (change) => {
        waiting += change;
      },
      answered: () => {},
    }),
    store: () => ({ answered: () => {}, failed: () => {} }),
    surface: () => () => {},
    subscribers: () => {},
  };
  return { observer, waiting: () => waiting };
}
