import type { Command } from "commander";
import {
  createKey,
  DEFAULT_OVERLAP,
  formatTime,
  isExpired,
  type Key,
  type KeyStore,
  type MintedKey,
  parseKeyName,
  parseLifetime,
  parseOverlap,
  rotateKey,
} from "../credential/key.ts";
import { Failure } from "../failure.ts";
import { openKeys } from "../storage/open.ts";
import { type Flags, optionFor, readStore, SETTINGS, UsageError } from "./config.ts";
import { written } from "./output.ts";
import { harmless } from "./terminal.ts";

/** Adds `todo keys`, which manages the keys of clients in a store, also of one that is being served. */
export function addKeysCommand(program: Command): void {
  const keys = program
    .command("keys")
    .description("Manage the keys that clients pass with at /api/whoami, also while the server runs.");
  const add = (name: string, description: string): Command =>
    keys
      .command(name)
      .description(description)
      .addOption(optionFor(SETTINGS.store))
      .addOption(optionFor(SETTINGS.storeFile));

  add("create", "Make a key for a client, and print its token, this once.")
    .argument("<name>", "the client's name")
    .option("--expires <duration>", "how long it is valid: 90d, 2w, 24h, 15m or 30s; by default for ever")
    .action(create);
  add("list", "List all keys, without their tokens, which are not kept.").action(list);
  add("rotate", "Make a successor to a key, and print its token, this once.")
    .argument("<name-or-id>", "the client's name, for its newest key, or a key's id")
    .option("--overlap <duration>", "how long the old one is valid still; 0 for not at all", DEFAULT_OVERLAP)
    .action(rotate);
  add("revoke", "Delete a key, or all keys of a client: at once they are nobody's.")
    .argument("<name-or-id>", "the client's name, or a key's id")
    .action(revoke);
}

async function create(name: string, flags: Flags): Promise<void> {
  const checked = saying("the name", () => parseKeyName(name));
  const lifetime = saying(`--expires "${flags.expires}"`, () => parseLifetime(flags.expires));
  await withKeys(flags, true, async (keys) => {
    const minted = await createKey(keys, checked, lifetime, Date.now());
    if (minted === undefined) {
      throw new UsageError("there is a key of this name already: rotate or revoke it (todo keys --help)");
    }
    await show(minted);
  });
}

async function list(flags: Flags): Promise<void> {
  const now = Date.now();
  await withKeys(flags, false, async (keys) => {
    const all = await keys.list();
    if (all.length === 0) process.stderr.write("There are no keys.\n");
    else process.stdout.write(table([HEAD, ...all.map((key) => rowOf(key, now))]));
  });
}

async function rotate(nameOrId: string, flags: Flags): Promise<void> {
  const overlap = saying(`--overlap "${flags.overlap}"`, () => parseOverlap(flags.overlap));
  await withKeys(flags, false, async (keys) => {
    const newest = (await named(keys, nameOrId)).at(-1);
    if (newest === undefined) throw unknownKey();
    const now = Date.now();
    const minted = await rotateKey(keys, newest.id, overlap, now);
    if (minted === undefined) throw unknownKey();
    const still = overlap === 0 ? "not valid any more" : `valid until ${formatTime(now + overlap)} at most`;
    await show(minted, `Older keys of ${harmless(minted.key.name)} are ${still}.`);
  });
}

async function revoke(nameOrId: string, flags: Flags): Promise<void> {
  await withKeys(flags, false, async (keys) => {
    let revoked = await named(keys, nameOrId);
    if (revoked.length === 0) throw unknownKey();
    // A rotation at the same time may add a successor; what is all gone cannot be rotated.
    for (; revoked.length > 0; revoked = (await keys.list()).filter(({ name }) => name === nameOrId)) {
      for (const { id, name } of revoked) {
        await keys.delete(id);
        process.stdout.write(`revoked ${id} of ${harmless(name)}\n`);
      }
      if (revoked[0]?.id === nameOrId) return;
    }
  });
}

/** The key with an id, or else those of a name. */
async function named(keys: KeyStore, nameOrId: string): Promise<Key[]> {
  const all = await keys.list();
  const byId = all.filter(({ id }) => id === nameOrId);
  return byId.length > 0 ? byId : all.filter(({ name }) => name === nameOrId);
}

/**
 * Works on the keys of the store that the settings name. What was asked wrongly is a UsageError; what fails
 * otherwise ends the process with one line and exit code 1.
 */
async function withKeys(flags: Flags, make: boolean, work: (keys: KeyStore) => Promise<void>): Promise<void> {
  const url = readStore(flags, process.env);
  const opened = await openKeys(url, make).catch((error) => {
    throw usageError("TODO_STORE", error);
  });
  if (opened === undefined) {
    throw new UsageError(
      "the keys of memory: are in the server alone: manage them at its /admin/keys, use TODO_CLIENTS_FILE, or name a file with --store sqlite:PATH",
    );
  }
  try {
    await work(opened.keys);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const reason = error instanceof Failure ? error.cause : error;
    process.stderr.write(`todo: ${reason instanceof Error ? reason.message : reason}\n`);
    process.exitCode = 1;
  } finally {
    await opened.close();
  }
}

/** The token alone on standard output, so that TOKEN=$(todo keys create ci) holds it; what it is beside. */
async function show({ key, token }: MintedKey, more = ""): Promise<void> {
  const end = key.expiresAt === undefined ? "does not expire" : `expires ${formatTime(key.expiresAt)}`;
  process.stderr.write(
    `Key ${key.id} of ${harmless(key.name)} ${end}. Its token is shown this once. ${more}`.trim(),
  );
  process.stderr.write("\n");
  await written(`${token}\n`).catch((error) => {
    throw new Error(`${error.message}: the token is lost, so revoke the key: todo keys revoke ${key.id}`);
  });
}

const HEAD = ["NAME", "ID", "CREATED", "EXPIRES", "LAST USED"];

function rowOf(key: Key, now: number): string[] {
  const { id, name, createdAt, expiresAt, lastUsedAt } = key;
  const end = expiresAt === undefined ? "never" : formatTime(expiresAt);
  return [
    harmless(name),
    id,
    formatTime(createdAt),
    isExpired(key, now) ? `${end} (expired)` : end,
    lastUsedAt === undefined ? "never" : formatTime(lastUsedAt),
  ];
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => Bun.stringWidth(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - Bun.stringWidth(cell))).join("  ");
  return rows.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Says no more, for what was given in place of a name may be a token. */
const unknownKey = (): UsageError =>
  new UsageError("there is no key of that name or id: todo keys list shows them");

function saying<T>(what: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw usageError(what, error);
  }
}

/** What a field or a store says is wrong, as a UsageError that says what it is about. */
function usageError(what: string, error: unknown): UsageError {
  const messages =
    error instanceof Failure ? error.errors?.map(({ message }) => message).join(", ") : undefined;
  return new UsageError(`${what}: ${messages ?? (error instanceof Error ? error.message : error)}`);
}
