import { accessSync, constants, readdirSync, rmSync, type StatsFs, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config/config.ts";
import { describeFile } from "../config/setting-values.ts";
import { asUsageError, CommandError, FAILED_EXIT_CODE, UsageError } from "../config/usage-error.ts";
import { describeFsError, errorMessage } from "../error-message.ts";
import type { Log } from "../http/observability/log.ts";
import type { Metrics } from "../http/observability/metrics.ts";
import { parseFilePath } from "../storage/open.ts";
import { backupInBackground } from "../storage/sqlite/maintenance.ts";

const TIME = "\\d{8}T\\d{6}Z";
const RETRY_MS = 10 * 60_000;
/** Longer timers are divided, because a timer of more than 24 days would fire immediately. */
const MAX_TIMER_MS = 3_600_000;

/**
 * Returns when and where to back up the store, if that is configured. Throws a UsageError if it is impossible. The exit code
 * is 1 if the folder cannot be used now, because its disk may be mounted later.
 */
export function readSchedule({ store: { url }, backups }: Config) {
  if (backups.folder === undefined) return undefined;
  const { value: folder } = backups.folder;
  const path = asUsageError(url.source, () => parseFilePath(url.value));
  if (path === undefined) {
    const next =
      url.value === "memory:"
        ? `set ${url.source} to sqlite:PATH`
        : "back up PostgreSQL with its own tools, such as pg_dump";
    throw new UsageError(`${backups.folder.source} needs a sqlite: store: ${next}`);
  }
  const subject = describeFile(backups.folder);
  let isFolder: boolean;
  try {
    isFolder = statSync(folder).isDirectory();
    if (isFolder) accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new CommandError(`${subject}: ${describeFsError(cause)}`, FAILED_EXIT_CODE, { cause });
  }
  if (!isFolder) throw new UsageError(`${subject}: it is not a folder: name an existing folder`);
  return { path, folder, everyMs: backups.every, keep: backups.keep };
}

/**
 * Backs up the store at a path when its newest backup is old enough, and removes its oldest backups. The names contain the
 * id of the store, so that backups of another store in the same folder stay.
 */
export function scheduleBackups(
  { path, folder, everyMs, keep }: NonNullable<ReturnType<typeof readSchedule>>,
  storeId: string,
  log: Log,
  metrics: Metrics | undefined,
): void {
  /** What an interrupted backup leaves. */
  const ownPart = new RegExp(`^todos-${TIME}-${storeId}\\.db\\.part(?:-journal|-wal|-shm)?$`);
  const failures = metrics?.counter("todo_backup_failures_total", "Failed scheduled backups.");
  let last = 0;
  let due = Number.POSITIVE_INFINITY;

  function findLast(): void {
    const found = findBackups(folder, storeId);
    for (const reason of found.problems) log.warn({ folder, reason }, "backup not counted");
    last = found.last;
    due = last + everyMs;
  }

  async function backUpIfDue(): Promise<void> {
    const name = `${nameAt(Date.now())}-${storeId}.db`;
    const file = join(folder, name);
    try {
      // At the start, or when the clock was set back, the due time is unknown.
      if (due - Date.now() > everyMs) findLast();
      if (Date.now() < due) return;
      for (const part of readdirSync(folder)) if (ownPart.test(part)) rmSync(join(folder, part));
      const { todos, bytes } = await backupInBackground(path, file);
      last = Date.now();
      due = last + everyMs;
      log.info({ file, todos, bytes }, "backup finished");
      removeOldest(name);
    } catch (error) {
      failures?.inc();
      due = Date.now() + Math.min(everyMs, RETRY_MS);
      log.error({ file, reason: errorMessage(error) }, "backup failed");
    }
  }

  /** Removes the oldest backups besides the newest. One that cannot be removed does not make the new backup a failure. */
  function removeOldest(newest: string): void {
    const others = listBackups(folder, storeId).filter((name) => name !== newest);
    // Those dated in the future are older than the newest.
    const [future, past] = [others.filter(isInFuture), others.filter((name) => !isInFuture(name))];
    for (const name of [...future, ...past].slice(0, Math.max(others.length + 1 - keep, 0))) {
      const old = join(folder, name);
      try {
        rmSync(old);
      } catch (error) {
        log.warn({ file: old, reason: errorMessage(error) }, "old backup not removed");
      }
    }
  }

  async function run(): Promise<void> {
    await backUpIfDue();
    setTimeout(run, Math.min(Math.max(due - Date.now(), 0), MAX_TIMER_MS)).unref();
  }
  run();

  if (metrics === undefined) return;
  // A disk that is gone must not make the whole scrape fail.
  const disk = (read: (stats: StatsFs) => number) => () => statfs(folder).then(read, () => Number.NaN);
  const freeBytes = disk(({ bavail, bsize }) => bavail * bsize);
  const allBytes = disk(({ blocks, bsize }) => blocks * bsize);
  const lastSuccess = "When the last backup finished, in seconds since 1970; 0 if none exists.";
  const interval = "Time between two scheduled backups.";
  const free = "Free space on the backups' file system.";
  const size = "Size of the backups' file system.";
  metrics.gauge("todo_backup_last_success_timestamp_seconds", lastSuccess, () => last / 1000);
  metrics.gauge("todo_backup_interval_seconds", interval, () => everyMs / 1000);
  metrics.gauge("todo_backup_disk_free_bytes", free, freeBytes);
  metrics.gauge("todo_backup_disk_size_bytes", size, allBytes);
}

/**
 * Returns the time of the newest backup in a folder in milliseconds since 1970, and what is wrong with those that do not
 * count; 0 if none counts.
 * @param storeId the id of their store (default: any store)
 */
export function findBackups(
  folder: string,
  storeId = "[\\w-]+",
): { last: number; problems: readonly string[] } {
  let last = 0;
  const problems: string[] = [];
  for (const name of listBackups(folder, storeId)) {
    try {
      const stat = statSync(join(folder, name));
      if (!stat.isFile()) problems.push(`${name} is not a file`);
      else if (stat.size === 0) problems.push(`${name} is empty`);
      else if (isInFuture(name) || stat.mtimeMs > Date.now())
        problems.push(`${name} is dated in the future: check the clock`);
      else last = Math.max(last, stat.mtimeMs);
    } catch (error) {
      problems.push(`${name}: ${describeFsError(error)}`);
    }
  }
  return { last, problems };
}

/** Returns the names of the backups in a folder, sorted by their times. */
function listBackups(folder: string, storeId: string): string[] {
  const pattern = new RegExp(`^todos-${TIME}-${storeId}\\.db$`);
  return readdirSync(folder)
    .filter((name) => pattern.test(name))
    .toSorted();
}

const nameAt = (time: number): string => `todos-${new Date(time).toISOString().replace(/[-:]|\.\d+/g, "")}`;

const isInFuture = (name: string): boolean => name.slice(0, nameAt(0).length) > nameAt(Date.now());
