import { open } from "node:fs/promises";
import { addAbortSignal } from "node:stream";
import type { Command } from "commander";
import { type Flags, readSettings } from "../../config/config.ts";
import { SETTINGS, SettingOption } from "../../config/settings.ts";
import { describeFsError } from "../../error-message.ts";
import { createFileAtomic } from "../../storage/atomic-file.ts";
import { PreconditionError, type TransferSummary } from "../../storage/maintenance.ts";
import { addStoreCommand, KEPT_URLS, runOnStore } from "../command.ts";
import { type CommandProcess, type Output, printError, writeStdout } from "../terminal/output.ts";

/** Only the owner may read an export, because all of it is data that private mode protects. */
const EXPORT_MODE = 0o600;

const INCOMPLETE_EXIT_CODE = 3;

/** Adds `todo export` and `todo import`. */
export function addTransferCommands(program: Command, process: CommandProcess): void {
  const add = (name: string, description: string): Command =>
    addStoreCommand(program, name, description, KEPT_URLS)
      .argument("[file]")
      .option("--with-keys", WITH_KEYS);

  add(
    "export",
    "Export all to-dos as lines of JSON to a new file or standard output. Works while a server runs.",
  )
    .option(
      "--skip-damaged",
      "export what can be read of a damaged SQLite store; exit with 3 if something was left out or may be wrong",
    )
    .action((file: string | undefined, flags: Flags) => exportTodos(process, file, flags));
  add(
    "import",
    "Import exported to-dos into a store that has never held any. Stop a server that uses the SQLite file first.",
  )
    .addOption(new SettingOption(SETTINGS.store.maxTodos))
    .action((file: string | undefined, flags: Flags) => importTodos(process, file, flags));
}

function exportTodos(process: CommandProcess, file: string | undefined, flags: Flags): Promise<void> {
  const keys = readKeysOption(flags);
  return runOnStore(process, flags, async (store, task) => {
    const { signal } = task;
    // The lines of the export would follow the progress on the same terminal.
    const options = file === undefined && process.stdout.isTTY ? { signal } : task;
    const damaged = flags.skipDamaged === undefined ? "refuse" : "skip";
    const write = async (output: (text: string) => Promise<void>): Promise<TransferSummary> => {
      const summary = await store.export(output, { ...options, keys, damaged });
      const { problems = [] } = summary;
      for (const problem of problems) printError(process, problem);
      if (problems.length > 0) process.exitCode = INCOMPLETE_EXIT_CODE;
      return summary;
    };
    if (file === undefined) {
      const summary = await write((text) => unlessAborted(signal, writeStdout(process, text)));
      printSummary(process.stderr, "exported", summary);
      return;
    }
    const summary = await createFileAtomic(file, EXPORT_MODE, async (part) => {
      await using handle = await open(part, "a");
      return await write((text) => handle.appendFile(text));
    });
    printSummary(process.stdout, "exported", summary);
  });
}

function importTodos(process: CommandProcess, file: string | undefined, flags: Flags): Promise<void> {
  const { maxTodos } = readSettings({ maxTodos: SETTINGS.store.maxTodos }, flags, process.env);
  return runOnStore(process, flags, async (store, task) => {
    const source = file === undefined ? addAbortSignal(task.signal, process.stdin) : fileChunks(file);
    const keys = readKeysOption(flags);
    const summary = await store.import(source, maxTodos, { ...task, keys });
    printSummary(process.stdout, "imported", summary);
  });
}

const WITH_KEYS = "include the API keys: the hashes of their tokens, which stay valid";

const readKeysOption = ({ withKeys }: Flags): "include" | "omit" =>
  withKeys === undefined ? "omit" : "include";

async function* fileChunks(file: string): AsyncGenerator<Uint8Array> {
  try {
    yield* Bun.file(file).stream();
  } catch (error) {
    throw new PreconditionError(`${file}: ${describeFsError(error)}`, { cause: error });
  }
}

function printSummary(output: Output, what: string, summary: TransferSummary): void {
  const { todos, lastId, keys, orphans = 0 } = summary;
  const more = keys === undefined ? "" : `, with ${keys} API ${keys === 1 ? "key" : "keys"}`;
  const less = orphans === 0 ? "" : `; left out ${orphans} made with a key that the file does not have`;
  output.write(
    `${what} ${todos} ${todos === 1 ? "to-do" : "to-dos"}, the last id is ${lastId}${more}${less}\n`,
  );
}

/** Settles as the promise does, or rejects with the reason of the signal if that aborts first. */
function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return Promise.race([promise, aborted.promise]).finally(() => signal.removeEventListener("abort", onAbort));
}
