import type { TodoId } from "../src/sdk/client.ts";
import { readSetting, settingNames, writeSetting } from "./settings.ts";

/** A page renews its records this often, so that other pages know that it still runs. */
const RENEW_MS = 5000;
const LIFETIME_MS = 20_000;
/** How long the requests of a closing page may take. */
const CLOSING_MS = 3000;
const PREFIX = "deletion.";

interface Fields {
  /** The history that the ids belong to. */
  readonly epoch: string;
  readonly ids: readonly TodoId[];
  /** The time after which the page that wrote the record no longer runs, in milliseconds since 1970. */
  readonly expires: number;
}

/**
 * A deletion that is not confirmed, stored in the browser. If the browser is killed, or closes while it is offline, the
 * next page finds the record and can say that the to-dos were not deleted.
 */
export class DeletionRecord {
  readonly #name = PREFIX + crypto.getRandomValues(new Uint32Array(3)).join("-");
  readonly #epoch: string;
  readonly #ids: readonly TodoId[];
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(epoch: string, ids: Iterable<TodoId>) {
    this.#epoch = epoch;
    this.#ids = [...ids];
    this.#write(LIFETIME_MS);
    this.#timer = setInterval(() => this.#write(LIFETIME_MS), RENEW_MS);
  }

  #write(lifetimeMs: number): void {
    const fields: Fields = { epoch: this.#epoch, ids: this.#ids, expires: Date.now() + lifetimeMs };
    writeSetting(this.#name, JSON.stringify(fields));
  }

  /** Lets other pages check the record soon. */
  expireSoon(): void {
    this.#write(CLOSING_MS);
  }

  remove(): void {
    clearInterval(this.#timer);
    writeSetting(this.#name);
  }
}

/** Removes the records of pages that no longer run. Returns their ids, and the milliseconds until the next check. */
export function takeExpiredRecords(epoch: string): {
  readonly ids: readonly TodoId[];
  readonly nextCheckMs: number | undefined;
} {
  const ids: TodoId[] = [];
  let next = Number.POSITIVE_INFINITY;
  for (const name of settingNames(PREFIX)) {
    const fields = parseFields(readSetting(name));
    const remaining = (fields?.expires ?? 0) - Date.now();
    // A clock that was set back must not keep a record.
    if (remaining > 0 && remaining <= LIFETIME_MS) next = Math.min(next, remaining);
    else {
      writeSetting(name);
      if (fields?.epoch === epoch) ids.push(...fields.ids);
    }
  }
  return { ids, nextCheckMs: Number.isFinite(next) ? next : undefined };
}

function parseFields(text = "null"): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isFields(value) ? value : undefined;
  } catch {
    // Not written by this version of the page. The caller removes it.
    return undefined;
  }
}

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" &&
  value !== null &&
  "epoch" in value &&
  typeof value.epoch === "string" &&
  "expires" in value &&
  typeof value.expires === "number" &&
  "ids" in value &&
  Array.isArray(value.ids) &&
  value.ids.every((id) => /^\d+$/.test(id));
