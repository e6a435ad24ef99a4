import { open } from "node:fs/promises";
import type { Command } from "commander";
import { type Flags, getSource, readMaxTodos, readStore } from "../../config/config.ts";
import { optionFor, SETTINGS } from "../../config/settings.ts";
import { describeFsError } from "../../error-message.ts";
import { createFileAtomic } from "../../storage/atomic-file.ts";
import {
  PreconditionError,
  type StoreAdmin,
  type TaskOptions,
  TooManyTodosError,
  type TransferSummary,
} from "../../storage/maintenance.ts";
import { unlessAborted } from "../command.ts";
import { addStoreOptions, KEPT_URLS, runOnStore } from "../store-command.ts";
import { printError, writeStdout } from "../terminal/output.ts";

/** Permissions before the umask. Only the owner may read the hashes of API keys. */
const MODES = { omit: 0o666, include: 0o600 };

const INCOMPLETE_EXIT_CODE = 3;

/** Adds `todo export`. */
export function addExportCommand(program: Command): void {
  const command = program
    .command("export")
    .description(
      "Export all to-dos as lines of JSON to a new file or standard output. Works while a server runs.",
    )
    .argument("[file]")
    .option("--with-keys", WITH_KEYS)
    .option(
      "--skip-damaged",
      "export what can be read of a damaged SQLite store; exit with 3 if something was left out or may be wrong",
    );
  addStoreOptions(command, KEPT_URLS).action((file: string | undefined, flags: Flags) =>
    runOnStore(readStore(flags, process.env), async (store, signal) => {
      const keys = readKeysOption(flags);
      const source: Source = (write, options) =>
        flags.skipDamaged === undefined
          ? store.export(write, { ...options, keys })
          : exportSkippingDamaged(store, write, { ...options, keys });
      if (file === undefined) {
        const write = (text: string) => unlessAborted(signal, writeStdout(text));
        printSummary(process.stderr, "exported", await source(write, { signal }));
      } else printSummary(process.stdout, "exported", await exportToFile(source, file, MODES[keys], signal));
    }),
  );
}

/** Exports what can be read. Prints what is missing, and sets the exit code. */
async function exportSkippingDamaged(
  store: StoreAdmin,
  ...given: Parameters<StoreAdmin["exportSkippingDamaged"]>
): Promise<TransferSummary> {
  const { problems, ...summary } = await store.exportSkippingDamaged(...given);
  for (const problem of problems) printError(problem);
  if (problems.length > 0) process.exitCode = INCOMPLETE_EXIT_CODE;
  return summary;
}

/** Adds `todo import`. */
export function addImportCommand(program: Command): void {
  const command = program
    .command("import")
    .description(
      "Import exported to-dos into a store that has never held any. Stop a server that uses the SQLite file first.",
    )
    .argument("[file]")
    .option("--with-keys", WITH_KEYS);
  addStoreOptions(command, KEPT_URLS)
    .addOption(optionFor(SETTINGS.maxTodos))
    .action((file: string | undefined, flags: Flags) => {
      const maxTodos = readMaxTodos(flags, process.env);
      return runOnStore(readStore(flags, process.env), async (store, signal) => {
        const source = file === undefined ? inputChunks(signal) : fileChunks(file);
        const keys = readKeysOption(flags);
        const summary = await store.import(source, maxTodos, { signal, keys }).catch((error) => {
          if (!(error instanceof TooManyTodosError)) throw error;
          const limit = getSource(SETTINGS.maxTodos, flags, process.env);
          throw new PreconditionError(`${error.message}: raise the limit with ${limit}`, { cause: error });
        });
        printSummary(process.stdout, "imported", summary);
      });
    });
}

const WITH_KEYS = "include the API keys: the hashes of their tokens, which stay valid";

const readKeysOption = ({ withKeys }: Flags): "include" | "omit" =>
  withKeys === undefined ? "omit" : "include";

/** Writes an export. */
type Source = (write: (text: string) => Promise<void>, options: TaskOptions) => Promise<TransferSummary>;

function exportToFile(
  source: Source,
  file: string,
  mode: number,
  signal: AbortSignal,
): Promise<TransferSummary> {
  return createFileAtomic(file, mode, async (part) => {
    await using handle = await open(part, "a");
    return await source((text) => handle.appendFile(text), { signal });
  });
}

async function* inputChunks(signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const reader = Bun.stdin.stream().getReader();
  while (true) {
    const { done, value } = await unlessAborted(signal, reader.read());
    if (done) return;
    yield value;
  }
}

async function* fileChunks(file: string): AsyncGenerator<Uint8Array> {
  try {
    yield* Bun.file(file).stream();
  } catch (error) {
    throw new PreconditionError(`${file}: ${describeFsError(error)}`, { cause: error });
  }
}

function printSummary(output: NodeJS.WriteStream, what: string, summary: TransferSummary): void {
  const { todos, lastId, keys, orphans = 0 } = summary;
  const more = keys === undefined ? "" : `, with ${keys} API ${keys === 1 ? "key" : "keys"}`;
  const less = orphans === 0 ? "" : `; left out ${orphans} made with a key that the file does not have`;
  output.write(
    `${what} ${todos} ${todos === 1 ? "to-do" : "to-dos"}, the last id is ${lastId}${more}${less}\n`,
  );
}
