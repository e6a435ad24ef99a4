import type { Command } from "commander";
import { type Flags, readNamedStore, type Sourced } from "../config/config.ts";
import { optionFor, SETTINGS } from "../config/settings.ts";
import { asUsageError, CommandError, toUsageError, UsageError } from "../config/usage-error.ts";
import { errorMessage } from "../error-message.ts";
import { PreconditionError, type StoreAdmin } from "../storage/maintenance.ts";
import { openStoreAdmin, parseKind, type StoreKind, unknownKind } from "../storage/open.ts";
import { runCommand } from "./command.ts";

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
  const kind = store === undefined ? "memory" : parseKind(store.value);
  const hint = kind === undefined || hints[kind] === undefined ? "" : `; ${hints[kind]}`;
  if (store === undefined)
    throw new UsageError(`no store is named: set --store or TODO_STORE to ${urls}${hint}`);
  const { source, value } = store;
  if (kind === undefined) throw toUsageError(source, unknownKind(value, urls));
  if (kinds.includes(kind)) return store;
  const name = kind === "memory" ? "the memory store, which keeps nothing" : "PostgreSQL";
  throw new UsageError(`${source} names ${name}: use ${urls}${hint}`);
}

/**
 * Returns the SQLite file that an argument names as PATH or sqlite:PATH. Throws a UsageError for other stores. It does not
 * repeat them, because they may contain a password.
 */
export function sqliteStore(argument: string, command: Command): Sourced {
  if (argument === "memory:" || /^postgres(?:ql)?:\/\//.test(argument))
    throw new UsageError(`todo ${command.name()} is for SQLite files: give PATH or sqlite:PATH`);
  return { value: argument.startsWith("sqlite:") ? argument : `sqlite:${argument}`, source: "the file" };
}

/** Runs `work` on a store. Throws a UsageError if a precondition is not met. */
export function runOnStore(
  { value, source }: Sourced,
  work: (store: StoreAdmin, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const store = asUsageError(source, () => openStoreAdmin(value));
  return runCommand(
    (signal) => work(store, signal),
    (error) =>
      error instanceof PreconditionError
        ? new UsageError(error.message)
        : new CommandError(errorMessage(error)),
  );
}
