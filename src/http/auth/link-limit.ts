import { ServiceError } from "../../error.ts";

const MAX_LINKS = 10;
const WINDOW_MS = 60_000;

/**
 * Returns a function that counts the links that a key or a user makes. It throws `too_many_links` after 10 within a minute.
 * @param monotonicNow a steady clock in milliseconds
 */
export function createLinkLimit(monotonicNow: () => number): (parent: string) => void {
  /** The times of the latest links, oldest first, by parent. The parent that made a link last is the last one. */
  const times = new Map<string, readonly number[]>();
  return (parent) => {
    const now = monotonicNow();
    for (const [other, latest] of times) {
      if ((latest.at(-1) ?? 0) > now - WINDOW_MS) break;
      times.delete(other);
    }
    const recent = (times.get(parent) ?? []).filter((time) => time > now - WINDOW_MS);
    const [oldest = now] = recent;
    if (recent.length >= MAX_LINKS) {
      throw new ServiceError("too_many_links", {
        detail: `A key or a user can make ${MAX_LINKS} links in a minute. Use a link that is open, or wait.`,
        headers: { "Retry-After": String(Math.ceil((oldest + WINDOW_MS - now) / 1000)) },
      });
    }
    times.delete(parent);
    times.set(parent, [...recent, now]);
  };
}
