import { type Flags, readService } from "../config/config.ts";
import { CommandError, UNAUTHORIZED_EXIT_CODE, USAGE_EXIT_CODE } from "../config/usage-error.ts";
import { errorMessage, getErrno } from "../error-message.ts";
import { escapeControlsJson } from "../escape-controls.ts";
import { TodoApi, TodoApiError, type TodoApiOptions } from "../sdk/client.ts";
import { isProxyFailure } from "../sdk/retry.ts";
import { runCommand } from "./command.ts";
import type { CommandProcess } from "./terminal/output.ts";

/** Few, because somebody waits for the result. */
const RETRIES = 2;
/** The exit codes of errors that are not plain failures. */
const EXIT_CODES: ReadonlyMap<string, number> = new Map([
  ["unauthorized", UNAUTHORIZED_EXIT_CODE],
  ["validation_failed", USAGE_EXIT_CODE],
]);

/** The service that a command talks to. */
export type ServiceAddress = ReturnType<typeof readService>;

/** What a running command needs. */
export interface CommandContext {
  readonly process: CommandProcess;
  readonly flags: Flags;
  readonly service: ServiceAddress;
  readonly api: TodoApi;
  /** Aborts with the first Ctrl-C. */
  readonly signal: AbortSignal;
  /** Prints the value as a line of JSON, or else the text, if given. */
  readonly printLine: (value: object, text?: () => string) => void;
  readonly isJson: boolean;
}

/** Runs a command that sends requests to a running service. */
export function runOnService(
  process: CommandProcess,
  flags: Flags,
  work: (context: CommandContext) => Promise<void>,
  service = readService(flags, process.env),
): Promise<void> {
  const isJson = flags.json === true;
  const printLine: CommandContext["printLine"] = (value, text) => {
    if (isJson) process.stdout.write(`${escapeControlsJson(asJson(value))}\n`);
    else if (text !== undefined) process.stdout.write(`${text()}\n`);
  };
  const api = createApi(service, { retries: RETRIES });
  return runCommand(
    process,
    (signal) => work({ process, flags, service, api, signal, printLine, isJson }),
    (error) => toCommandError(error, service),
  );
}

export function createApi(
  { url, token }: ServiceAddress,
  options: Pick<TodoApiOptions, "retries" | "timeoutMs">,
): TodoApi {
  return new TodoApi({ baseUrl: url, ...options, ...(token !== undefined && { token }) });
}

/** Encodes an object as JSON. Ids become numbers with all their digits, as in the API. Quotes in titles have a backslash. */
const asJson = (value: object): string => JSON.stringify(value).replace(/"id":"(\d+)"/g, '"id":$1');

/** Returns why the service cannot be reached, and what to do about it. */
function describeNetworkError({ cause }: Error, { url, urlSource }: ServiceAddress): string {
  const code = String(getErrno(cause));
  const check = urlSource ?? "--url or TODO_URL";
  if (/CERT|ALTNAME|VERIFY/.test(code))
    return `the certificate of ${url} is not trusted: set NODE_EXTRA_CA_CERTS to the file of its certificate authority`;
  if (code === "EPROTO") return `${url} does not use TLS: write http:// in ${check}`;
  if (code === "ECONNRESET" && url.startsWith("http:"))
    return `${url} closed the connection: if the service uses TLS, write https:// in ${check}`;
  return urlSource === undefined
    ? `cannot connect to ${url}: start the service with npm start, or set --url or TODO_URL`
    : `cannot connect to ${url}: is the service running? Check ${urlSource}`;
}

/** Returns what is wrong and what to do about it. */
export function describeError(error: unknown, service: ServiceAddress): string {
  if (!(error instanceof TodoApiError)) return errorMessage(error);
  const { url, urlSource, token, tokenSource } = service;
  switch (error.code) {
    case "network_error":
      return describeNetworkError(error, service);
    case "timeout":
      return `${url} did not respond in time: the change may have been made; check with todo list`;
    case "unexpected_answer":
      if (isProxyFailure(error.status)) return error.message;
      if (error.status !== undefined && error.status >= 300 && error.status < 400)
        return `${error.message}: set --url or TODO_URL to the address of the service`;
      return `${url} is not a to-do service (status ${error.status}): ${urlSource === undefined ? "set --url or TODO_URL" : `check ${urlSource}`}`;
    case "unauthorized":
      return `${token === undefined ? "TODO_TOKEN is not set" : `${tokenSource} is not valid`}: run todo login ${url} with a token, or set TODO_TOKEN to one; todo keys create NAME prints one`;
    case "insufficient_scope":
      return `${tokenSource} may only read: use the token of an API key with the scope write, such as one that todo keys create NAME prints`;
    case "route_not_found":
      return `${url} is not the address of the service: leave out the path in ${urlSource ?? "--url or TODO_URL"}`;
    case "misdirected_host":
      return `${url} rejects this host name: ${error.detail ?? "see TODO_ALLOWED_HOSTS"}`;
    default:
      return error.fields.length > 0
        ? error.fields.map(({ field, message }) => `the ${field} ${message}`).join(", ")
        : `${error.message} (${error.code})`;
  }
}

export function toCommandError(error: unknown, service: ServiceAddress): CommandError {
  const exitCode = error instanceof TodoApiError ? EXIT_CODES.get(error.code) : undefined;
  return new CommandError(describeError(error, service), exitCode);
}
