import type { Command } from "commander";
import { localUrl } from "../../config/address.ts";
import { type Flags, readSettings, readTls } from "../../config/config.ts";
import { SETTINGS, SettingOption } from "../../config/settings.ts";
import { CommandError, UsageError } from "../../config/usage-error.ts";
import { errorMessage, getErrno } from "../../error-message.ts";
import type { CommandProcess } from "../terminal/output.ts";

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
      if (port.value === 0) {
        throw new UsageError(
          `port 0 means any free port: set ${port.source} to the port that the server listens on`,
        );
      }
      const url = `${localUrl(address, tls)}/${flags.ready === true ? "readyz" : "livez"}`;
      const failure = await probe(url);
      if (failure !== undefined) throw new CommandError(`${url}: ${failure}`);
    });
}

/** Sends a GET request to a server on this machine. */
export const fetchLocally = (url: string): Promise<Response> =>
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
