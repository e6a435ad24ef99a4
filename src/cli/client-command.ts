import { errorMessage } from "../error-message.ts";
import { TodoApi, TodoApiError, type TodoApiOptions } from "../sdk/client.ts";
import { type Flags, readService } from "./config.ts";
import { escapeControls, escapeControlsJson, paint } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

/** Exit codes besides 0 for success and 2 for usage errors. */
export const FAILED_EXIT_CODE = 1;
export const NOT_FOUND_EXIT_CODE = 3;
const UNAUTHORIZED_EXIT_CODE = 4;
const INTERRUPTED_EXIT_CODE = 130;

/** Few, because somebody waits for the result. */
const RETRIES = 2;

/** The service that a command talks to. */
export type ServiceAddress = ReturnType<typeof readService>;

/** What a running command needs. */
export interface CommandContext {
  readonly flags: Flags;
  readonly service: ServiceAddress;
  readonly api: TodoApi;
  /** Aborts with the first Ctrl-C. */
  readonly signal: AbortSignal;
  /** Prints the value as a line of JSON, or else the text, if given. */
  readonly printLine: (value: object, text?: () => string) => void;
  readonly isJson: boolean;
}

/** A failure with its exit code and a message that says what to do. */
export class CommandError extends Error {
  override readonly name = "CommandError";
  readonly exitCode: number;

  constructor(message: string, exitCode = FAILED_EXIT_CODE, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

/** Runs a command. On failure, prints a line that says what to do and sets the exit code. */
export async function runCommand(
  flags: Flags,
  work: (context: CommandContext) => Promise<void>,
): Promise<void> {
  const service = readService(flags, process.env);
  const isJson = flags.json === true;
  const interrupt = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupt.abort());
  const printLine: CommandContext["printLine"] = (value, text) => {
    if (isJson) process.stdout.write(`${escapeControlsJson(asJson(value))}\n`);
    else if (text !== undefined) process.stdout.write(`${text()}\n`);
  };
  try {
    const api = apiOf(service, { retries: RETRIES });
    await work({ flags, service, api, signal: interrupt.signal, printLine, isJson });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const isInterrupted = interrupt.signal.aborted;
    if (error instanceof CommandError || !isInterrupted) printError(describeError(error, service));
    // Reading standard input may never end by itself.
    if (isInterrupted) process.exit(INTERRUPTED_EXIT_CODE);
    process.exitCode = exitCodeOf(error);
  }
}

export function apiOf(
  { url, token }: ServiceAddress,
  options: Pick<TodoApiOptions, "retries" | "timeoutMs">,
): TodoApi {
  return new TodoApi({ baseUrl: url, ...options, ...(token !== undefined && { token }) });
}

export function printError(message: string): void {
  for (const line of message.split("\n"))
    process.stderr.write(`${paint("red", "todo:", process.stderr)} ${escapeControls(line)}\n`);
}

/** Encodes an object as JSON. Ids become numbers with all their digits, as in the API. Quotes in titles have a backslash. */
const asJson = (value: object): string => JSON.stringify(value).replace(/"id":"(\d+)"/g, '"id":$1');

/** Returns whether a connection failed because of the server certificate. */
const isDistrusted = (cause: unknown): boolean =>
  cause instanceof Error && "code" in cause && /CERT|ALTNAME|VERIFY/.test(String(cause.code));

/** Returns what is wrong and what to do about it. */
export function describeError(error: unknown, { url, urlSource, token }: ServiceAddress): string {
  if (!(error instanceof TodoApiError)) return errorMessage(error);
  switch (error.code) {
    case "network_error":
      if (isDistrusted(error.cause)) {
        return `the certificate of ${url} is not trusted: set NODE_EXTRA_CA_CERTS to the file of its certificate authority`;
      }
      return urlSource === undefined
        ? `cannot connect to ${url}: start the service with npm start, or set --url or TODO_URL`
        : `cannot connect to ${url}: is the service running? Check ${urlSource}`;
    case "timeout":
      return `${url} did not respond in time: the change may have been made; check with todo list`;
    case "unexpected_answer":
      if (error.status !== undefined && error.status >= 300 && error.status < 400)
        return `${error.message}: set --url or TODO_URL to the address of the service`;
      return `${url} is not a to-do service (status ${error.status}): ${urlSource === undefined ? "set --url or TODO_URL" : `check ${urlSource}`}`;
    case "unauthorized":
      return describeUnauthorized(token);
    case "insufficient_scope":
      return "the token in TODO_TOKEN may only read: set it to the token of an API key with the scope write, such as one that todo keys create NAME prints";
    case "misdirected_host":
      return `${url} rejects this host name: ${error.detail ?? "see TODO_ALLOWED_HOSTS"}`;
    default:
      return error.fields.length > 0
        ? error.fields.map(({ field, message }) => `the ${field} ${message}`).join(", ")
        : `${error.message} (${error.code})`;
  }
}

/** Returns what to do about a 401 response. */
const describeUnauthorized = (token: string | undefined): string =>
  `${token === undefined ? "TODO_TOKEN is not set" : "the token in TODO_TOKEN is not valid"}: set it to a token, such as one that todo keys create NAME prints`;

function exitCodeOf(error: unknown): number {
  if (error instanceof CommandError) return error.exitCode;
  if (error instanceof TodoApiError && error.code === "unauthorized") return UNAUTHORIZED_EXIT_CODE;
  return FAILED_EXIT_CODE;
}
