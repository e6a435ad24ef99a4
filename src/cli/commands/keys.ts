import type { Command } from "commander";
import { type Flags, readSettings, readStoreUrl } from "../../config/config.ts";
import { quoteValue, serviceUrl } from "../../config/setting-values.ts";
import { CLIENT_SETTINGS } from "../../config/settings.ts";
import {
  asUsageError,
  CommandError,
  notFound,
  toStoreError,
  toUsageError,
  UsageError,
} from "../../config/usage-error.ts";
import { parseScope } from "../../credential/client.ts";
import {
  createKey,
  DEFAULT_OVERLAP,
  formatTime,
  isExpired,
  isListed,
  type Key,
  type KeyStore,
  type MintedKey,
  parseKeyName,
  parseLifetime,
  parseOverlap,
  rotateKey,
} from "../../credential/key.ts";
import { createLink, getOwner, renameKey } from "../../credential/session.ts";
import { ServiceError } from "../../error.ts";
import { errorMessage } from "../../error-message.ts";
import { escapeControls } from "../../escape-controls.ts";
import { isLoopbackOrigin } from "../../http/policy/address.ts";
import { formatLink, renderQrCode } from "../../sign-in-link.ts";
import { openKeys } from "../../storage/open.ts";
import { quoteArgument } from "../../storage/sqlite/rescue.ts";
import type { CommandContext } from "../client-command.ts";
import { addStoreCommand, KEPT_URLS } from "../command.ts";
import { type CommandProcess, printError, writeStdout } from "../terminal/output.ts";

type Context = Pick<CommandContext, "process" | "flags">;

const NEWEST = "name of the client, for its newest key, or id of a key";

/** Adds `todo keys`, which manages the API keys in a store, also while a server uses the store. */
export function addKeysCommand(program: Command, process: CommandProcess): void {
  const keys = program.command("keys").description("Manage API keys, also while the server runs.");
  const add = (name: string, description: string): Command =>
    addStoreCommand(keys, name, description, KEPT_URLS);

  add("create", "Create an API key and print its token, which is shown only once.")
    .argument("<name>", "name of the client")
    .option("--expires <duration>", "lifetime, such as 90d, 2w, 24h, 15m or 30s; by default unlimited")
    .option(
      "--scope <scope>",
      "read, to only read to-dos, or write; scopes apply in private mode only (TODO_PRIVATE)",
      "write",
    )
    .option(
      "--link [url]",
      "print a link and a QR code that sign in one browser within ten minutes, instead of the token; url: the address of the service, by default TODO_URL",
    )
    .action((name: string, flags: Flags) => create({ process, flags }, name));
  add("link", "Print a link and a QR code that sign in another browser of a client. Its token stays valid.")
    .argument("<name-or-id>", NEWEST)
    .argument("[url]", "address of the service, by default TODO_URL")
    .action((key: string, url: string | undefined, flags: Flags) => link({ process, flags }, key, url));
  add("list", "List all API keys. Their tokens are not stored.").action((flags: Flags) =>
    list({ process, flags }),
  );
  add("rename", "Rename an API key, or what follows the owner in the name of a browser.")
    .argument("<name-or-id>", NEWEST)
    .argument("<new-name>", "new name")
    .action((key: string, name: string, flags: Flags) => rename({ process, flags }, key, name));
  add("rotate", "Replace an API key and print the new token, which is shown only once.")
    .argument("<name-or-id>", NEWEST)
    .option(
      "--overlap <duration>",
      "how long the old key stays valid; 0 revokes it immediately",
      DEFAULT_OVERLAP,
    )
    .action((key: string, flags: Flags) => rotate({ process, flags }, key));
  add("revoke", "Revoke an API key, or all keys of a client, immediately.")
    .argument("<name-or-id>", "name of the client or id of a key")
    .action((key: string, flags: Flags) => revoke({ process, flags }, key));
}

async function create({ process, flags }: Context, name: string): Promise<void> {
  const checked = asUsageError("the name", () => parseKeyName(name));
  const lifetime = asUsageError(`--expires "${flags.expires}"`, () => parseLifetime(flags.expires));
  const scope = asUsageError(`--scope "${flags.scope}"`, () => parseScope(flags.scope));
  const serviceUrl = flags.link === undefined ? undefined : parseLinkUrl(process, flags.link, "--link");
  const work = async (keys: KeyStore): Promise<void> => {
    const minted = await createKey(keys, checked, lifetime, Date.now(), scope);
    if (minted === undefined)
      throw new UsageError(
        `a key with this name already exists: run todo keys ${serviceUrl === undefined ? "rotate for a new token" : "link for another link"}, or choose another name`,
      );
    if (serviceUrl === undefined) await show(process, minted);
    else await showLink(process, keys, minted.key, serviceUrl);
  };
  await withKeys({ process, flags }, work, { createIfMissing: true });
}

async function link(context: Context, nameOrId: string, url: string | undefined): Promise<void> {
  const { process } = context;
  const serviceUrl = parseLinkUrl(process, url ?? true, "the URL");
  await withKeys(context, async (keys) => {
    const newest = await findNewest(keys, nameOrId);
    if (newest.kind !== undefined)
      throw new UsageError(
        `${newest.id} is the key of a browser: use the name or id of the key that it signed in with`,
      );
    await showLink(process, keys, newest, serviceUrl);
  });
}

async function rename(context: Context, nameOrId: string, newName: string): Promise<void> {
  await withKeys(context, async (keys) => {
    const newest = await findNewest(keys, nameOrId);
    const all = await keys.list();
    const { id, name } = await renameKey(keys, newest, newName, all).catch((error) => {
      if (!(error instanceof ServiceError)) throw error;
      throw error.code === "key_exists"
        ? new UsageError("another key has this name: choose a different one")
        : toUsageError("the name", error);
    });
    context.process.stdout.write(`renamed ${id} to ${escapeControls(name)}\n`);
  });
}

/**
 * Returns the address of the service in a link.
 * @param url `true` stands for TODO_URL
 * @param source names the argument in an error
 */
function parseLinkUrl(process: CommandProcess, url: unknown, source: string): string {
  if (url === true) return readSettings({ url: CLIENT_SETTINGS.url }, {}, process.env).url.value;
  return asUsageError(`${source} ${quoteValue(String(url))}`, () => serviceUrl(String(url)));
}

/** Prints only the link on standard output; the QR code goes to standard error. */
async function showLink(process: CommandProcess, keys: KeyStore, key: Key, url: string): Promise<void> {
  const created = await createLink(keys, { kind: "key", id: key.id }, key.scope, Date.now());
  if (created === undefined)
    throw new CommandError(`the key ${key.id} has expired or was revoked: create another one`);
  const who = isLoopbackOrigin(url) ? "only this machine can open" : "others need HTTPS to open";
  if (isLoopbackOrigin(url) || url.startsWith("http:"))
    printError(
      process,
      `warning: ${who} a link to ${url}: run todo keys link ${quoteArgument(key.name)} ADDRESS for a link that other devices can open`,
    );
  const link = formatLink(url, created.code);
  process.stderr.write(
    `${renderQrCode(link)}This link signs in one browser as ${escapeControls(key.name)} within ten minutes:\n`,
  );
  await writeStdout(process, `${link}\n`);
}

async function list(context: Context): Promise<void> {
  const { stdout, stderr } = context.process;
  const now = Date.now();
  await withKeys(context, async (keys) => {
    const all = (await keys.list()).filter((key) => isListed(key, now));
    if (all.length === 0) stderr.write("No API keys.\n");
    else stdout.write(table([HEAD, ...all.map((key) => formatRow(key, all, now))]));
  });
}

async function rotate({ process, flags }: Context, nameOrId: string): Promise<void> {
  const overlap = asUsageError(`--overlap "${flags.overlap}"`, () => parseOverlap(flags.overlap));
  await withKeys({ process, flags }, async (keys) => {
    const newest = await findNewest(keys, nameOrId);
    const now = Date.now();
    const minted = await rotateKey(keys, newest.id, overlap, now);
    if (minted === undefined) throw unknownKey();
    const until =
      overlap === 0 ? "no longer valid" : `valid until ${formatTime(now + overlap)} at the latest`;
    await show(process, minted, ` Older keys of ${escapeControls(minted.key.name)} are ${until}.`);
  });
}

async function revoke(context: Context, nameOrId: string): Promise<void> {
  await withKeys(context, async (keys) => {
    let revoked = await named(keys, nameOrId);
    if (revoked.length === 0) throw unknownKey();
    // A concurrent rotation may add another key, so repeat until none is left.
    for (; revoked.length > 0; revoked = await named(keys, nameOrId)) {
      for (const { id, name } of revoked) {
        await keys.delete(id);
        context.process.stdout.write(`revoked ${id} of ${escapeControls(name)}\n`);
      }
      if (revoked[0]?.id === nameOrId) return;
    }
  });
}

/** Returns the key with this id, or else all keys of the client with this name. */
async function named(keys: KeyStore, nameOrId: string): Promise<Key[]> {
  const all = await keys.list();
  const byId = all.filter(({ id }) => id === nameOrId);
  return byId.length > 0 ? byId : all.filter(({ kind, name }) => kind === undefined && name === nameOrId);
}

/** Returns the key with this id, or else the newest key of the client with this name. Throws a CommandError without one. */
async function findNewest(keys: KeyStore, nameOrId: string): Promise<Key> {
  const newest = (await named(keys, nameOrId)).at(-1);
  if (newest === undefined) throw unknownKey();
  return newest;
}

/** Runs `work` on the API keys of the configured store. Throws every failure as a CommandError. */
async function withKeys(
  { process, flags }: Context,
  work: (keys: KeyStore) => Promise<void>,
  { createIfMissing } = { createIfMissing: false },
): Promise<void> {
  const { value: url, source } = readStoreUrl(flags, process.env);
  const onCreated = (created: string) => printError(process, `created ${created}`);
  const opened = await openKeys(url, { createIfMissing, onCreated }).catch((error) => {
    throw toStoreError(source, error);
  });
  if (opened === undefined)
    throw new UsageError(
      `${source}: commands cannot open the keys of a memory store: manage them at /admin/keys, or use ${KEPT_URLS}, or TODO_CLIENTS_FILE`,
    );
  try {
    await work(opened.keys).finally(() => opened.close());
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(errorMessage(error instanceof ServiceError ? error.cause : error));
  }
}

/** Prints only the token on standard output, for TOKEN=$(todo keys create ci); the rest goes to standard error. */
async function show(process: CommandProcess, { key, token }: MintedKey, more = ""): Promise<void> {
  const expiry = key.expiresAt === undefined ? "does not expire" : `expires ${formatTime(key.expiresAt)}`;
  process.stderr.write(
    `Key ${key.id} of ${escapeControls(key.name)} ${expiry}. Its token is shown only once.${more}\n`,
  );
  await writeStdout(process, `${token}\n`).catch((error) => {
    throw new Error(`${error.message}: the token is lost; revoke the key with todo keys revoke ${key.id}`);
  });
}

const HEAD = ["NAME", "ID", "SCOPE", "CREATED", "EXPIRES", "LAST USED", "DEVICE OF"];

function formatRow(key: Key, all: readonly Key[], now: number): string[] {
  const { id, name, scope, createdAt, expiresAt, lastUsedAt, parent } = key;
  const end = expiresAt === undefined ? "never" : formatTime(expiresAt);
  return [
    escapeControls(name),
    id,
    scope,
    formatTime(createdAt),
    isExpired(key, now) ? `${end} (expired)` : end,
    lastUsedAt === undefined ? "never" : formatTime(lastUsedAt),
    parent === undefined ? "" : escapeControls(getOwner(parent, all)),
  ];
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => Bun.stringWidth(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - Bun.stringWidth(cell))).join("  ");
  return rows.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Does not repeat the argument, because it may be a token. */
const unknownKey = (): CommandError =>
  notFound("no key has this name or id: run todo keys list to see all keys");
