const INTERVAL_MS = 10_000;
/** Further sources of a topic share one summary, so that a flood from many networks cannot fill the memory or the log. */
const MAX_SOURCES = 100;

/** Runs a function once after some milliseconds. */
export type Schedule = (run: () => void, ms: number) => void;

/**
 * Writes a line, or counts it if this source had one in the last ten seconds.
 * @param source what the lines have in common, such as network and reason
 */
export type WriteLimited = (source: string, fields: object) => void;

/** A source that had a line, and the lines since then. */
interface Source {
  latest: object;
  times: number;
}

interface Topic {
  readonly write: (fields: object) => void;
  readonly sources: Map<string, Source>;
  others: number;
}

/**
 * Limits the log lines that clients can cause. Each source's first line is written at once. Then one summary
 * is written every ten seconds, with the latest line's fields and the number of lines that it replaces as `times`.
 */
export class LogLimiter {
  readonly #schedule: Schedule;
  readonly #topics: Topic[] = [];
  #isScheduled = false;

  /** @param schedule by default a timer that does not keep the process alive */
  constructor(schedule: Schedule = (run, ms) => setTimeout(run, ms).unref()) {
    this.#schedule = schedule;
  }

  /**
   * Returns the writer of one kind of line. Sources beyond the first 100 share one summary, with `others: true` and `times`.
   * @param write writes a line with the given fields
   */
  topic(write: (fields: object) => void): WriteLimited {
    const topic: Topic = { write, sources: new Map(), others: 0 };
    this.#topics.push(topic);
    return (name, fields) => {
      const source = topic.sources.get(name);
      if (source !== undefined) {
        source.latest = fields;
        source.times++;
      } else if (topic.sources.size < MAX_SOURCES) {
        topic.sources.set(name, { latest: fields, times: 0 });
        this.#scheduleFlush();
        write(fields);
      } else topic.others++;
    };
  }

  /** Writes the summaries of all lines counted so far. */
  flush(): void {
    for (const topic of this.#topics) {
      for (const [name, source] of topic.sources) {
        if (source.times === 0) topic.sources.delete(name);
        else topic.write({ ...source.latest, times: source.times });
        source.times = 0;
      }
      if (topic.others > 0) topic.write({ others: true, times: topic.others });
      topic.others = 0;
    }
  }

  #scheduleFlush(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#schedule(() => {
      this.#isScheduled = false;
      this.flush();
      if (this.#topics.some(({ sources }) => sources.size > 0)) this.#scheduleFlush();
    }, INTERVAL_MS);
  }
}
