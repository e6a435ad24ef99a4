import type { Command } from "commander";
import { errorMessage } from "../error-message.ts";
import { type Maintenance, PreconditionError } from "../storage/maintenance.ts";
import { kindOf, openMaintenance, type StoreKind, unknownKind } from "../storage/open.ts";
import { type Flags, readNamedStore, type Sourced } from "./config.ts";
import { optionFor, SETTINGS } from "./settings.ts";
import { asUsageError, toUsageError, UsageError } from "./usage-error.ts";

/** The stores that a command accepts. */
export interface AcceptedStores {
  readonly kinds: readonly StoreKind[];
  /** Their URLs, as help and errors write them. */
  readonly urls: string;
  /** What to do about a store of another kind. */
  readonly hints?: Readonly<Partial<Record<StoreKind, string>>>;
}

/** Every store that outlives its server. */
export const KEPT_STORES: AcceptedStores = {
  kinds: ["sqlite", "postgres"],
  urls: "sqlite:PATH or postgres://…",
};

/**
 * Returns SQLite files.
 * @param forPostgres what to do instead on PostgreSQL
 */
export const sqliteStores = (forPostgres: string): AcceptedStores => ({
  kinds: ["sqlite"],
  urls: "sqlite:PATH",
  hints: { postgres: forPostgres },
});

/** Adds the options that select the store of a command. */
export function addStoreOptions(command: Command, { urls }: AcceptedStores): Command {
  const { flag, variables, parse } = SETTINGS.store;
  return command
    .addOption(optionFor({ flag, variables, parse, description: `store to use: ${urls}` }))
    .addOption(optionFor(SETTINGS.storeFile));
}

/** Returns the configured store. Throws a UsageError unless the command accepts it. */
export function readAcceptedStore(flags: Flags, { kinds, urls, hints = {} }: AcceptedStores): Sourced {
  const store = readNamedStore(flags, process.env);
  const kind = store === undefined ? "memory" : kindOf(store.value);
  const hint = kind === undefined || hints[kind] === undefined ? "" : `; ${hints[kind]}`;
  if (store === undefined)
    throw new UsageError(`no store is named: set --store or TODO_STORE to ${urls}${hint}`);
  const { source, value } = store;
  if (kind === undefined) throw toUsageError(source, unknownKind(value, urls));
  if (kinds.includes(kind)) return store;
  const name = kind === "memory" ? "the memory store, which keeps nothing" : "PostgreSQL";
  throw new UsageError(`${source} names ${name}: use ${urls}${hint}`);
}

/** Runs `work` on the configured store, as `maintain` does. */
export function withMaintenance(
  flags: Flags,
  accepted: AcceptedStores,
  work: (maintenance: Maintenance, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { value, source } = readAcceptedStore(flags, accepted);
  return maintain(value, source, work);
}

/**
 * Returns the URL of a SQLite file that an argument names as PATH or sqlite:PATH. Throws a UsageError for other stores. It
 * does not repeat them, because they may contain a password.
 */
export function sqliteUrl(argument: string, command: Command): string {
  if (argument.startsWith("sqlite:")) return argument;
  if (argument === "memory:" || /^postgres(?:ql)?:\/\//.test(argument))
    throw new UsageError(`todo ${command.name()} is for SQLite files: give PATH or sqlite:PATH`);
  return `sqlite:${argument}`;
}

/**
 * Runs `work` on the store at a URL. SIGINT and SIGTERM abort it. Throws a UsageError if a precondition is not met; any
 * other failure exits with one line and exit code 1.
 * @param setting what named the store, for error messages
 */
export async function maintain(
  url: string,
  setting: string,
  work: (maintenance: Maintenance, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  try {
    const maintenance = asUsageError(setting, () => openMaintenance(url));
    await work(maintenance, stopSignal());
  } catch (error) {
    if (error instanceof PreconditionError) throw new UsageError(error.message);
    if (error instanceof UsageError) throw error;
    process.stderr.write(`todo: ${errorMessage(error)}\n`);
    process.exit(1);
  }
}

/** Settles as the promise does, or rejects with the reason of the signal if that aborts first. */
export function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}

/** Returns a signal that the first SIGINT or SIGTERM aborts. The next one ends the process. */
function stopSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => controller.abort(new Error(`interrupted by ${signal}`)));
  }
  return controller.signal;
}
