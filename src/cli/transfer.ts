import { open } from "node:fs/promises";
import type { Command } from "commander";
import { type Archive, type Moved, Refusal } from "../storage/archive.ts";
import { makeWholeFile, whyNot } from "../storage/whole-file.ts";
import { addStoreOptions, unlessAborted, withArchive } from "./archive.ts";
import { type Flags, optionFor, readMaxTodos, SETTINGS } from "./config.ts";
import { written } from "./output.ts";
import { withBar } from "./progress.ts";

/** Before what the user takes away by umask. */
const EXPORT_MODE = 0o666;

/** Adds `todo export`. */
export function addExportCommand(program: Command): void {
  const command = program
    .command("export")
    .description(
      "Write all to-dos as lines of JSON, to a new file or standard output; also while a server runs.",
    )
    .argument("[file]");
  addStoreOptions(command).action((file: string | undefined, flags: Flags) =>
    withArchive(flags, async (archive, signal) => {
      if (file === undefined) say(process.stderr, "exported", await exportToOutput(archive, signal));
      else say(process.stdout, "exported", await exportToFile(archive, file, signal));
    }),
  );
}

/** Adds `todo import`. */
export function addImportCommand(program: Command): void {
  const command = program
    .command("import")
    .description(
      "Read to-dos, as export writes them, into a store that has held none; not while a server runs.",
    )
    .argument("[file]");
  addStoreOptions(command)
    .addOption(optionFor(SETTINGS.maxTodos))
    .action((file: string | undefined, flags: Flags) => {
      const maxTodos = readMaxTodos(flags, process.env);
      return withArchive(flags, async (archive, signal) => {
        const source = file === undefined ? piecesOfInput(signal) : piecesOf(file);
        const moved = await withBar("importing", true, (onProgress) =>
          archive.import(source, maxTodos, { signal, onProgress }),
        );
        say(process.stdout, "imported", moved);
      });
    });
}

function exportToFile(archive: Archive, file: string, signal: AbortSignal): Promise<Moved> {
  return makeWholeFile(file, EXPORT_MODE, async (part) => {
    await using handle = await open(part, "a");
    return await withBar("exporting", true, (onProgress) =>
      archive.export((text) => handle.appendFile(text), { signal, onProgress }),
    );
  });
}

function exportToOutput(archive: Archive, signal: AbortSignal): Promise<Moved> {
  // A bar would be drawn between the lines.
  return withBar("exporting", !process.stdout.isTTY, (onProgress) =>
    archive.export((text) => unlessAborted(signal, written(text)), { signal, onProgress }),
  );
}

async function* piecesOfInput(signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const reader = Bun.stdin.stream().getReader();
  while (true) {
    const { done, value } = await unlessAborted(signal, reader.read());
    if (done) return;
    yield value;
  }
}

async function* piecesOf(file: string): AsyncGenerator<Uint8Array> {
  try {
    yield* Bun.file(file).stream();
  } catch (error) {
    throw new Refusal(`${file}: ${whyNot(error)}`, { cause: error });
  }
}

function say(output: NodeJS.WriteStream, what: string, { todos, lastId }: Moved): void {
  output.write(`${what} ${todos} ${todos === 1 ? "to-do" : "to-dos"}, the last id is ${lastId}\n`);
}
