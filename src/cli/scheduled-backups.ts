import { readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { errorMessage } from "../error-message.ts";
import type { Log } from "../http/observability/log.ts";
import { backupInBackground } from "../storage/sqlite/maintenance/background-backup.ts";

export interface BackupSchedule {
  /** The folder of the backups. */
  readonly folder: string;
  /** Milliseconds between two backups. */
  readonly everyMs: number;
  /** How many backups to keep. */
  readonly keep: number;
}

export interface ScheduledBackups {
  /** Returns the time of the last backup in milliseconds since 1970; 0 if none exists. */
  readonly lastSuccess: () => number;
  /** Returns the number of failed backups since the start. */
  readonly failures: () => number;
}

const TIME = "\\d{8}T\\d{6}Z";
/** The backups of any store. */
const NAME = new RegExp(`^todos-${TIME}-[\\w-]+\\.db$`);
const RETRY_MS = 10 * 60_000;
/** Longer timers are divided, because a timer of more than 24 days would fire immediately. */
const MAX_TIMER_MS = 3_600_000;

/**
 * Backs up the store at a path when its newest backup is old enough, and removes its oldest backups. The names contain the
 * epoch of the store, so that backups of another store in the same folder stay.
 */
export function scheduleBackups(
  path: string,
  epoch: string,
  { folder, everyMs, keep }: BackupSchedule,
  log: Log,
): ScheduledBackups {
  const own = new RegExp(`^todos-${TIME}-${epoch}\\.db$`);
  /** What an interrupted backup leaves. */
  const ownPart = new RegExp(`^todos-${TIME}-${epoch}\\.db\\.part(?:-journal|-wal|-shm)?$`);
  let failures = 0;
  let last = lastBackupIn(folder, own);
  let due = last + everyMs;

  async function backUp(): Promise<void> {
    const file = join(folder, nameAt(new Date(), epoch));
    try {
      for (const name of readdirSync(folder)) if (ownPart.test(name)) rmSync(join(folder, name));
      const { todos, bytes } = await backupInBackground(path, file);
      last = Date.now();
      due = last + everyMs;
      log.info({ file, todos, bytes }, "backup finished");
      removeOldest();
    } catch (error) {
      failures++;
      due = Date.now() + Math.min(everyMs, RETRY_MS);
      log.error({ file, reason: errorMessage(error) }, "backup failed");
    }
  }

  /** Removes the oldest backups. One that cannot be removed does not make the new backup a failure. */
  function removeOldest(): void {
    for (const name of backupsIn(folder, own).slice(0, -keep)) {
      const old = join(folder, name);
      try {
        rmSync(old);
      } catch (error) {
        log.warn({ file: old, reason: errorMessage(error) }, "old backup not removed");
      }
    }
  }

  async function run(): Promise<void> {
    if (Date.now() >= due) await backUp();
    setTimeout(run, Math.min(Math.max(due - Date.now(), 0), MAX_TIMER_MS)).unref();
  }
  run();
  return { lastSuccess: () => last, failures: () => failures };
}

/**
 * Returns the time of the newest backup in a folder in milliseconds since 1970; 0 if it has none.
 * @param name what the names of the backups match (default: the backups of any store)
 */
export const lastBackupIn = (folder: string, name = NAME): number =>
  Math.max(0, ...backupsIn(folder, name).map((file) => statSync(join(folder, file)).mtimeMs));

/** Returns the names of the backups in a folder, the oldest first. */
const backupsIn = (folder: string, name: RegExp): string[] =>
  readdirSync(folder)
    .filter((file) => name.test(file))
    .toSorted();

const nameAt = (time: Date, epoch: string): string =>
  `todos-${time.toISOString().replace(/[-:]|\.\d+/g, "")}-${epoch}.db`;
