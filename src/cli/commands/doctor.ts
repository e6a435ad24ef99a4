import { once } from "node:events";
import { existsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import type { Command } from "commander";
import { describeListenError, localUrl, resolveAddress } from "../../config/address.ts";
import { type Config, type Flags, readConfig, readSecretFiles } from "../../config/config.ts";
import { describeFile, type Environment, type Sourced } from "../../config/setting-values.ts";
import { addServeOptions } from "../../config/settings.ts";
import { describeFsError, errorMessage, getErrno } from "../../error-message.ts";
import { escapeControls } from "../../escape-controls.ts";
import { validityError } from "../../http/listener/tls.ts";
import { NOOP_LOG } from "../../http/observability/log.ts";
import { isLoopback } from "../../http/policy/address.ts";
import { findBackups, readSchedule } from "../../serve/backups.ts";
import { getCertificateFiles, readCertificate } from "../../serve/certificate.ts";
import { openCredentials } from "../../serve/credentials.ts";
import { describeRisk } from "../../serve/start-message.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { parseFilePath, probeStore, type StoreProbe } from "../../storage/open.ts";
import { fileUsage } from "../../storage/sqlite/files.ts";
import { findRescueFiles, rescueTime, restoreCommand } from "../../storage/sqlite/ways-out.ts";
import type { CommandProcess } from "../terminal/output.ts";
import { fetchLocally } from "./health.ts";

/** `warning`: the server works, but the operator should know. `failed`: the server would not start or not work. */
type Outcome = readonly [status: "ok" | "warning" | "failed", text: string, isOfOurServer?: boolean];

const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;
/** Larger differences between two clocks are an error. */
const MAX_CLOCK_DIFFERENCE_MS = 60_000;
const MIN_FREE_BYTES = 64 * 1024 * 1024;
const LOW_FREE_SHARE = 0.1;
/** As in the alert TodoBackupTooOld. */
const MAX_MISSED_BACKUPS = 2;
const NOT_CONFIGURED: Outcome = ["ok", "not configured"];
const READABLE_BY_OTHERS = 0o004;
const WRITABLE_BY_OTHERS = 0o002;

/** Adds `todo doctor`. */
export function addDoctorCommand(program: Command, process: CommandProcess): void {
  const command = program
    .command("doctor")
    .description("Check the settings of todo serve, one line per check. Exits with 1 if a check fails.");
  addServeOptions(command);
  command
    .option("--json", "print each check as a line of JSON with name, status (ok, warning or failed) and text")
    .addHelpText(
      "after",
      "\nPass the flags and variables of the server, and run it as the server's user. Changes nothing.",
    )
    .action(async (flags: Flags) => {
      let hasFailed = false;
      for await (const [name, [status, text]] of checks(flags, process.env)) {
        const line =
          flags.json === undefined
            ? `${status.padEnd(8)} ${name.padEnd(12)} ${escapeControls(text)}`
            : JSON.stringify({ name, status, text });
        process.stdout.write(`${line}\n`);
        hasFailed ||= status === "failed";
      }
      process.exitCode = hasFailed ? 1 : 0;
    });
}

/** Runs all checks in order. Throws a UsageError for an invalid setting. */
async function* checks(flags: Flags, env: Environment): AsyncGenerator<[name: string, outcome: Outcome]> {
  const config = readConfig(flags, env);
  const { address, metrics } = config;
  const { url } = config.store;
  const probed = await probeStore(url.value).catch((error: unknown) => errorMessage(error));
  const store = typeof probed === "string" ? undefined : probed;
  const port = await attempt(() => checkPort(address.host, address.port, config.tls));
  yield ["store", store === undefined ? ["failed", String(probed)] : storeOutcome(store, port, url)];
  yield ["credentials", await attempt(() => checkCredentials(config))];
  yield ["certificate", await attempt(() => checkCertificate(config))];
  if (store !== undefined) {
    yield ["disk", checkDisk(store)];
    yield ["clock", checkClock(store)];
  }
  yield ["port", port];
  yield ["metrics", await attempt(() => checkPort(metrics.host, metrics.port, { cert: undefined }))];
  for (const outcome of findRescue(url.value)) yield ["rescue", outcome];
  yield ["backups", await attempt(() => checkBackups(config, store))];
  for (const outcome of checkFiles(flags, env, store)) yield ["files", outcome];
  const onLoopback = isLoopback(await resolveAddress(address.host).catch(() => ""));
  const risk = describeRisk(config, onLoopback);
  yield ["risks", risk === undefined ? ["ok", "none known"] : ["warning", risk]];
}

/** Returns the outcome of a check that throws if it fails. */
async function attempt(check: () => Outcome | Promise<Outcome>): Promise<Outcome> {
  try {
    return await check();
  } catch (error) {
    return ["failed", errorMessage(error)];
  }
}

function storeOutcome(store: StoreProbe, [, , isOfOurServer]: Outcome, { source }: Sourced): Outcome {
  switch (store.kind) {
    case "memory":
      return [
        "warning",
        `memory: loses all to-dos when the server stops: set ${source} to sqlite:PATH to keep them`,
      ];
    case "sqlite":
      if (store.lastChange === undefined)
        return ["ok", `${store.path} does not exist yet, and can be created`];
      if (!store.isLocked) return ["ok", `${store.path} can be read and written`];
      return isOfOurServer
        ? ["ok", `${store.path} can be read and written; a running server uses it`]
        : ["failed", `${store.path} is in use by another process: stop it, or name another store`];
    case "postgres":
      return ["ok", "the database is reachable and accepts writes, and the role has the necessary rights"];
  }
}

/** Returns a warning if a server has written a rescue file beside its store. */
function findRescue(url: string): Outcome[] {
  let path: string | undefined;
  try {
    path = parseFilePath(url);
  } catch {
    // The check of the store has the reason.
  }
  const file = path === undefined ? undefined : findRescueFiles(path).at(-1);
  if (path === undefined || file === undefined) return [];
  const text = `${file} has what a server held at ${rescueTime(file)}, when its files were wrong: if the store lacks changes, stop the server and run ${restoreCommand(file, path)}; otherwise remove the file`;
  return [["warning", text]];
}

async function checkCredentials(config: Config): Promise<Outcome> {
  // The check reads no API keys.
  const credentials = await openCredentials(config, openMemory().keys, NOOP_LOG);
  if (credentials.demo !== undefined || credentials.needsFirstKey) {
    const consequence = config.access.privateMode
      ? "the server does not start"
      : "each start generates demo credentials";
    return ["warning", `only API keys of the store are accepted; without keys, ${consequence}`];
  }
  const clients = credentials.hasClients
    ? "clients are configured"
    : "only API keys of the store are accepted as clients";
  const users = credentials.hasUsers ? "users are configured" : "no user is configured for /admin/";
  return ["ok", `${clients}; ${users}`];
}

function checkCertificate({ tls }: Config): Outcome {
  const files = getCertificateFiles(tls);
  if (files === undefined) return NOT_CONFIGURED;
  const certificate = readCertificate(files);
  const problem = validityError(certificate, Date.now());
  const until = `valid until ${certificate.notAfter.toISOString()}`;
  if (problem !== undefined) return ["failed", `${files.cert.value}: ${problem} (${until})`];
  const isSoon = certificate.notAfter.getTime() - Date.now() < EXPIRES_SOON_MS;
  return isSoon ? ["warning", `${until}: renew it soon`] : ["ok", until];
}

function checkDisk(store: StoreProbe): Outcome {
  if (store.kind !== "sqlite") return ["ok", "the store uses no local disk"];
  const { freeBytes, totalBytes } = fileUsage(store.path);
  if (Number.isNaN(freeBytes)) return ["failed", "the file system of the store cannot be read"];
  const text = `${Math.floor(freeBytes / 1024 ** 2)} MiB of ${Math.floor(totalBytes / 1024 ** 2)} MiB are free`;
  if (freeBytes < MIN_FREE_BYTES) return ["failed", `${text}: make room, because writes need it`];
  return [freeBytes < totalBytes * LOW_FREE_SHARE ? "warning" : "ok", text];
}

/** Compares the clock with that of the database, or with the last change of the file. */
function checkClock(store: StoreProbe): Outcome {
  const now = new Date();
  if (store.kind === "postgres") {
    const difference = now.getTime() - store.now;
    const seconds = `${(Math.abs(difference) / 1000).toFixed(1)} s ${difference < 0 ? "behind" : "ahead of"} the database`;
    return [
      Math.abs(difference) > MAX_CLOCK_DIFFERENCE_MS ? "failed" : "ok",
      `${now.toISOString()}, ${seconds}`,
    ];
  }
  if (store.kind === "sqlite" && (store.lastChange ?? 0) > now.getTime() + MAX_CLOCK_DIFFERENCE_MS)
    return ["failed", `${now.toISOString()} is before the last change of the store: set the clock`];
  return ["ok", now.toISOString()];
}

/** Checks the folder of the scheduled backups, and the age of the newest one of the store. */
function checkBackups(config: Config, store: StoreProbe | undefined): Outcome {
  const schedule = readSchedule(config);
  if (schedule === undefined) return ["ok", "not scheduled by the server"];
  const { folder, everyMs } = schedule;
  const id = store?.kind === "sqlite" ? store.id : undefined;
  const { last, problems } = findBackups(folder, id);
  const isTooOld = last > 0 && Date.now() - last > MAX_MISSED_BACKUPS * everyMs;
  const text =
    last === 0
      ? `${folder} can be written, and has no backup yet`
      : `the newest backup in ${folder} is of ${new Date(last).toISOString()}`;
  const warnings = [
    ...(isTooOld ? ["it is too old; the log of the server has the reason"] : []),
    ...problems,
  ];
  return warnings.length > 0 ? ["warning", `${text}: ${warnings.join("; ")}`] : ["ok", text];
}

async function checkPort(
  host: string,
  configured: Sourced<number> | undefined,
  tls: Pick<Config["tls"], "cert">,
): Promise<Outcome> {
  if (configured === undefined) return NOT_CONFIGURED;
  const { value: port, source } = configured;
  const address = await resolveAddress(host);
  if (port === 0) return ["ok", `the server uses any free port on ${host}`];
  const server = createServer();
  try {
    await once(server.listen({ host: address, port, exclusive: true }), "listening");
    return ["ok", `${port} on ${host} is free`];
  } catch (error) {
    if (getErrno(error) === "EADDRINUSE" && (await isOurs(localUrl({ host, port: configured }, tls))))
      return ["ok", `${port} on ${host} is used by a running todo server`, true];
    return ["failed", describeListenError(error, { host, port }, source)];
  } finally {
    server.close();
  }
}

/** The body of a response of this program to an unknown path, to a Host header that it does not allow, or in private mode. */
const OWN_ERROR = /^\{.*"code":"(?:route_not_found|misdirected_host|unauthorized|https_required)"/;

/** Whether a server of this program responds. */
async function isOurs(url: string): Promise<boolean> {
  try {
    const response = await fetchLocally(`${url}/unknown`);
    return OWN_ERROR.test(await response.text());
  } catch {
    // Any failure means that another program uses the port.
    return false;
  }
}

/** Checks who may read and write the files with secrets or hashes, and the store. */
function checkFiles(flags: Flags, env: Environment, store: StoreProbe | undefined): Outcome[] {
  const files = readSecretFiles(flags, env);
  if (store?.kind === "sqlite" && store.lastChange !== undefined)
    files.push(
      { source: "the store", value: store.path },
      ...[`${store.path}-wal`].filter(existsSync).map((value) => ({ source: "the log of the store", value })),
    );
  const outcomes = files.flatMap((file): Outcome[] => {
    const subject = describeFile(file);
    try {
      const { mode } = statSync(file.value);
      if (mode & WRITABLE_BY_OTHERS)
        return [["failed", `${subject}: every user can change it: run chmod o-w`]];
      return mode & READABLE_BY_OTHERS
        ? [["warning", `${subject}: every user can read it: run chmod o-r`]]
        : [];
    } catch (error) {
      return [["failed", `${subject}: ${describeFsError(error)}`]];
    }
  });
  return outcomes.length > 0 ? outcomes : [["ok", "other users cannot read or change the configured files"]];
}
