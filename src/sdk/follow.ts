import { abortOnReturn, linkAbort } from "./abort.ts";
import { type ListSource, startList, synchronize } from "./confirmed-list.ts";
import { reuse } from "./json.ts";
import { Overlay } from "./overlay.ts";
import { createPendingWrites } from "./pending-writes.ts";
import { isUnauthorized } from "./retry.ts";
import type { FollowedList, FollowOptions, LiveList } from "./types.ts";
import type { Writes } from "./writes.ts";

/** The calls that a followed list is made from. */
export interface Source extends ListSource {
  readonly writes: Writes;
  /** Functions of the followed lists that start them again, because a session began or ended. */
  readonly restarts: Set<() => void>;
}

/** One frame of a screen, because the copy of a long list takes about a millisecond. */
const FRAME_MS = 16;

/**
 * Follows the list of a service while something subscribes to it, and shows the effects of writes at once. Throws a
 * TypeError if the list to start from is only a page.
 */
export function followList(source: Source, options: FollowOptions): FollowedList {
  if (options.from?.next) throw new TypeError("from: a page is not the whole list");
  const subscribers = new Set<{ readonly onState: (state: LiveList) => void }>();
  let list = startList(options.from);
  const overlay = new Overlay();
  const writes = createPendingWrites(source.writes, overlay, () => list, onChange);
  let state: LiveList = { status: "connecting", todos: [] };
  let isOutdated = true;
  let published = getState();
  let isScheduled = false;
  /** Keeps the list current until it is aborted. */
  let run: ReturnType<typeof linkAbort> | undefined;

  return { getState, subscribe, [Symbol.asyncIterator]: () => iterate(subscribe, options.signal), ...writes };

  function getState(): LiveList {
    if (!isOutdated) return state;
    isOutdated = false;
    const { todos, isStale, ...connection } = list;
    if (list.position) overlay.advance(list.position);
    const next = { ...connection, todos: reuse(overlay.apply(todos), state.todos) };
    if (!isSame(next, state)) state = next;
    return state;
  }

  function subscribe(onState: (state: LiveList) => void): () => void {
    // An object of its own, because the same function can subscribe twice.
    const subscriber = { onState };
    subscribers.add(subscriber);
    source.restarts.add(restart);
    start();
    return () => {
      subscribers.delete(subscriber);
      if (subscribers.size > 0) return;
      source.restarts.delete(restart);
      run?.abort();
    };
  }

  function start(): void {
    if (run?.signal.aborted === false || subscribers.size === 0 || options.signal?.aborted) return;
    run = linkAbort(options.signal);
    const { signal, abort } = run;
    Object.assign(list, { status: "connecting", error: undefined });
    synchronize(list, overlay, source, { ...options, signal }, onChange).catch((error) => {
      if (signal.aborted) return;
      abort();
      if (isUnauthorized(error)) return restart(error);
      Object.assign(list, { status: "failed", error });
      publish();
    });
  }

  /**
   * Forgets the list, and rejects the writes that were not sent, because the next session may be another person's.
   * @param error why nobody is signed in. Without it, the list starts again
   */
  function restart(error?: Error): void {
    run?.abort();
    overlay.clear();
    list = startList();
    if (error !== undefined) Object.assign(list, { status: "signed-out", error });
    publish();
    if (error === undefined) start();
  }

  /** Publishes a state after one frame, with the changes until then. */
  function onChange(error?: unknown): void {
    if (isUnauthorized(error)) restart();
    if (!list.isStale && overlay.needsList) {
      run?.abort();
      list.isStale = true;
      start();
    }
    isOutdated = true;
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(() => {
      isScheduled = false;
      if (!options.signal?.aborted) publish();
    }, FRAME_MS);
  }

  /** Publishes the state if it differs from the last one. */
  function publish(): void {
    isOutdated = true;
    if (getState() === published) return;
    published = state;
    for (const { onState } of subscribers) onState(state);
  }
}

const isSame = (one: LiveList, other: LiveList): boolean =>
  (["todos", "position", "status", "error"] as const).every((name) => one[name] === other[name]);

/** Yields each state until the signal aborts or the iteration ends. Throws the error of the last one. */
function iterate(subscribe: FollowedList["subscribe"], other: AbortSignal | undefined) {
  return abortOnReturn(other, async function* (signal): AsyncGenerator<LiveList, void, undefined> {
    let latest: LiveList | undefined;
    let wake = (): void => {};
    const unsubscribe = subscribe((next) => {
      latest = next;
      wake();
    });
    signal.addEventListener("abort", () => {
      unsubscribe();
      wake();
    });
    while (!signal.aborted) {
      const next = latest;
      latest = undefined;
      if (next?.status === "failed" || next?.status === "signed-out") throw next.error;
      if (next !== undefined) yield next;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  });
}
