import type { Command } from "commander";
import { describeListenError, localUrl, resolveAddress } from "../../config/address.ts";
import { type Config, type Flags, readConfig, readSettings, readTls } from "../../config/config.ts";
import { addServeOptions, SETTINGS, SettingOption } from "../../config/settings.ts";
import { CommandError, UsageError } from "../../config/usage-error.ts";
import { errorMessage, getErrno } from "../../error-message.ts";
import { escapeControls } from "../../escape-controls.ts";
import { validityError } from "../../http/listener/tls.ts";
import { NOOP_LOG } from "../../http/observability/log.ts";
import { findBackups, readSchedule } from "../../serve/backups.ts";
import { readCertificate } from "../../serve/certificate.ts";
import { openCredentials } from "../../serve/credentials.ts";
import { openMemory } from "../../storage/memory/store.ts";
import { probeStore } from "../../storage/open.ts";
import type { CommandProcess } from "../terminal/output.ts";

/** `warning`: the server works, but the operator should know. `failed`: the server would not start or not work. */
type Outcome = readonly [status: "ok" | "warning" | "failed", text: string];

const EXPIRES_SOON_MS = 14 * 86_400_000;
/** As in the alert TodoBackupTooOld. */
const MAX_MISSED_BACKUPS = 2;

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
      for await (const [name, [status, text]] of checks(readConfig(flags, process.env))) {
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

/** Runs all checks in order. A check that throws has failed. */
async function* checks(config: Config): AsyncGenerator<[name: string, outcome: Outcome]> {
  const isRunning = await isOurs(localUrl(config.address, config.tls));
  const failed = (error: unknown): Outcome => ["failed", errorMessage(error)];
  yield ["store", await checkStore(config, isRunning).catch(failed)];
  yield ["credentials", await checkCredentials(config).catch(failed)];
  yield ["certificate", await checkCertificate(config).catch(failed)];
  yield ["port", await checkPort(config, isRunning).catch(failed)];
  yield ["backups", await checkBackups(config).catch(failed)];
}

async function checkStore({ store: { url } }: Config, isRunning: boolean): Promise<Outcome> {
  const store = await probeStore(url.value);
  if (store.kind === "memory")
    return [
      "warning",
      `memory: loses all to-dos when the server stops: set ${url.source} to sqlite:PATH to keep them`,
    ];
  if (store.kind === "postgres")
    return ["ok", "the database is reachable and accepts writes, and the role has the necessary rights"];
  if (store.id === undefined) return ["ok", `${store.path} does not exist yet, and can be created`];
  if (!store.isLocked) return ["ok", `${store.path} can be read and written`];
  return isRunning
    ? ["ok", `${store.path} can be read and written; a running server uses it`]
    : ["failed", `${store.path} is in use by another process: stop it, or name another store`];
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

async function checkCertificate({ tls: { cert, key } }: Config): Promise<Outcome> {
  if (cert === undefined || key === undefined) return ["ok", "not configured"];
  const certificate = readCertificate({ cert, key });
  const problem = validityError(certificate, Date.now());
  const until = `valid until ${certificate.notAfter.toISOString()}`;
  if (problem !== undefined) return ["failed", `${cert.value}: ${problem} (${until})`];
  const isSoon = certificate.notAfter.getTime() - Date.now() < EXPIRES_SOON_MS;
  return isSoon ? ["warning", `${until}: renew it soon`] : ["ok", until];
}

async function checkPort({ address }: Config, isRunning: boolean): Promise<Outcome> {
  const { host, port } = address;
  if (isRunning) return ["ok", `${port.value} on ${host} is used by a running todo server`];
  if (port.value === 0) return ["ok", `the server uses any free port on ${host}`];
  try {
    const hostname = await resolveAddress(host);
    Bun.listen({ hostname, port: port.value, exclusive: true, socket: { data() {} } }).stop();
    return ["ok", `${port.value} on ${host} is free`];
  } catch (error) {
    return ["failed", describeListenError(error, { host, port: port.value }, port.source)];
  }
}

/** The body of a response of this program to an unknown path, or to a Host header that it does not allow. */
const OWN_ERROR = /^\{.*"code":"(?:route_not_found|misdirected_host)"/;

/** Returns whether a server of this program responds. After any failure, another program uses the port, or none. */
const isOurs = (url: string): Promise<boolean> =>
  fetchLocally(`${url}/unknown`)
    .then((response) => response.text())
    .then((text) => OWN_ERROR.test(text))
    .catch(() => false);

/** Checks the folder of the scheduled backups, and the age of the newest one of the store. */
async function checkBackups(config: Config): Promise<Outcome> {
  const schedule = readSchedule(config);
  if (schedule === undefined) return ["ok", "not scheduled by the server"];
  const { folder, everyMs } = schedule;
  // The check of the store has the reason if it cannot be opened.
  const store = await probeStore(config.store.url.value).catch(() => undefined);
  const { last, problems } = findBackups(folder, store?.kind === "sqlite" ? store.id : undefined);
  const text =
    last === 0
      ? `${folder} can be written, and has no backup yet`
      : `the newest backup in ${folder} is of ${new Date(last).toISOString()}`;
  const isTooOld = last > 0 && Date.now() - last > MAX_MISSED_BACKUPS * everyMs;
  const warnings = isTooOld ? ["it is too old; the log of the server has the reason", ...problems] : problems;
  return warnings.length > 0 ? ["warning", `${text}: ${warnings.join("; ")}`] : ["ok", text];
}

const TIMEOUT_MS = 3000;

/** Adds `todo health`, for containers without curl. */
export function addHealthCommand(program: Command, process: CommandProcess): void {
  program
    .command("health")
    .description("Check whether the server on this machine responds. Exits with 0, or with 1 and the reason.")
    .addOption(new SettingOption({ ...SETTINGS.address.host, description: "address to check" }))
    .addOption(new SettingOption({ ...SETTINGS.address.port, description: "port to check" }))
    .addOption(new SettingOption(SETTINGS.tls.cert))
    .addOption(new SettingOption(SETTINGS.tls.key))
    .option("--ready", "also check readiness: the store responds, and the server is not shutting down")
    .action(async (flags: Flags) => {
      const address = readSettings(SETTINGS.address, flags, process.env);
      const tls = readTls(flags, process.env);
      const { port } = address;
      if (port.value === 0)
        throw new UsageError(
          `port 0 means any free port: set ${port.source} to the port that the server listens on`,
        );
      const url = `${localUrl(address, tls)}/${flags.ready === true ? "readyz" : "livez"}`;
      const failure = await probe(url);
      if (failure !== undefined) throw new CommandError(`${url}: ${failure}`);
    });
}

/** Sends a GET request to a server on this machine. */
const fetchLocally = (url: string): Promise<Response> =>
  fetch(url, {
    signal: AbortSignal.timeout(TIMEOUT_MS),
    // The certificate is for the public name, not for this address. The request contains no secret.
    tls: { rejectUnauthorized: false },
  });

/** Returns why the server is not healthy, or `undefined` if it is. */
async function probe(url: string): Promise<string | undefined> {
  try {
    const response = await fetchLocally(url);
    return response.ok ? undefined : `status ${response.status}: ${await response.text()}`;
  } catch (error) {
    return getErrno(error) === "ECONNREFUSED" ? "connection refused" : errorMessage(error);
  }
}
