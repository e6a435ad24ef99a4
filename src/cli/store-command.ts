import type { Command } from "commander";
import type { Sourced } from "../config/config.ts";
import { optionFor, SETTINGS } from "../config/settings.ts";
import { asUsageError, CommandError, UsageError } from "../config/usage-error.ts";
import { errorMessage } from "../error-message.ts";
import { PreconditionError, type StoreAdmin } from "../storage/maintenance.ts";
import { openStoreAdmin } from "../storage/open.ts";
import { runCommand } from "./command.ts";

/** The URLs of SQLite files, and of every store that outlives its server. */
export const SQLITE_URL = "sqlite:PATH";
export const KEPT_URLS = `${SQLITE_URL} or postgres://…`;

/**
 * Adds the options that select the store of a command.
 * @param urls the URLs that the command accepts
 */
export function addStoreOptions(command: Command, urls: string): Command {
  const { flag, parse } = SETTINGS.store;
  return command
    .addOption(optionFor({ flag, parse, description: `store to use: ${urls}` }))
    .addOption(optionFor(SETTINGS.storeFile));
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
