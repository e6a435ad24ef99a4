import { Argument, type Command } from "commander";
import { describeFsError, errnoOf } from "../error-message.ts";
import { TodoApiError } from "../sdk/client.ts";
import {
  type CommandContext,
  CommandError,
  describeUnauthorized,
  FAILED_EXIT_CODE,
  NOT_FOUND_EXIT_CODE,
  runCommand,
  UNAUTHORIZED_EXIT_CODE,
} from "./client-command.ts";
import type { Flags } from "./config.ts";
import { unlessAborted } from "./maintenance.ts";
import { writeStdout } from "./output.ts";
import { CLIENT_SETTINGS, optionFor } from "./settings.ts";
import { escapeControls, escapeControlsJson } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const WITHOUT_BODY: readonly string[] = ["GET", "HEAD"];
/** How long to wait for the head of the response. An event stream has no end. */
const HEAD_TIMEOUT_MS = 10_000;

const EXIT_CODES: Readonly<Record<number, number>> = {
  401: UNAUTHORIZED_EXIT_CODE,
  404: NOT_FOUND_EXIT_CODE,
};

const HELP = `
Examples:
  todo api GET '/api/todos?done=false&limit=5'
  todo api POST /api/todos --data '{"title":"buy milk"}'
  todo api PATCH /api/todos/1 --data @change.json --include

The exit code is 3 for status 404, 4 for 401, and 1 for any
other status but a success. Redirects are not followed.`;

/** Adds `todo api`. */
export function addApiCommand(program: Command): void {
  program
    .command("api")
    .description(
      "Send one request to the service, with TODO_TOKEN if it is set, and print the response body.",
    )
    .addArgument(new Argument("<method>").choices(METHODS).argParser(parseMethod))
    .argument("<path>", "path and query, such as /api/todos?done=false")
    .addOption(optionFor(CLIENT_SETTINGS.url))
    .option("--data <json>", "request body: JSON, @FILE, or - for standard input")
    .option("--include", "print the status and the headers before the body")
    .addHelpText("after", HELP)
    .action((method: string, path: string, flags: Flags) =>
      runCommand(flags, (context) => sendRequest(context, method, path)),
    );
}

function parseMethod(text: string): string {
  const method = text.toUpperCase();
  if (METHODS.includes(method)) return method;
  throw new UsageError(`"${text}" is not a method: use one of ${METHODS.join(", ")}`);
}

async function sendRequest(context: CommandContext, method: string, path: string): Promise<void> {
  const { flags, service, signal } = context;
  const url = targetOf(service.url, path);
  if (flags.data !== undefined && WITHOUT_BODY.includes(method))
    throw new UsageError(`a ${method} request has no body: remove --data, or use another method`);
  const body = typeof flags.data === "string" ? await readBody(flags.data, signal) : undefined;
  // Without it, the headers would describe compressed bytes that nobody sees.
  const headers = new Headers({ Accept: "*/*", "Accept-Encoding": "identity" });
  if (body !== undefined) headers.set("Content-Type", "application/json");
  if (service.token !== undefined) headers.set("Authorization", `Bearer ${service.token}`);
  const response = await fetchHead(url, { method, headers, ...(body !== undefined && { body }) }, signal);
  try {
    if (flags.include === true) await printHead(response);
    await printBody(response);
  } catch (error) {
    if (isClosedPipe(error)) return;
    throw error;
  }
  if (!response.ok)
    throw new CommandError(
      describeStatus(response, service.token),
      EXIT_CODES[response.status] ?? FAILED_EXIT_CODE,
    );
}

/** Returns the URL of a path. Throws a UsageError if it could be on another origin, which must not get the token. */
function targetOf(baseUrl: string, path: string): string {
  const url = path.startsWith("/") && URL.canParse(baseUrl + path) ? new URL(baseUrl + path) : undefined;
  if (url?.origin === new URL(baseUrl).origin) return url.href;
  throw new UsageError(
    `"${path}" is not a path: start it with a slash, as in /api/todos, and name the service with --url or TODO_URL`,
  );
}

async function readBody(data: string, signal: AbortSignal): Promise<string | Uint8Array<ArrayBuffer>> {
  if (data === "-") return unlessAborted(signal, Bun.stdin.bytes());
  if (!data.startsWith("@")) return data;
  const path = data.slice(1);
  try {
    return await Bun.file(path).bytes();
  } catch (error) {
    throw new UsageError(`--data @${path}: ${describeFsError(error)}`, { cause: error });
  }
}

/** Resolves when the head of the response has arrived. Does not follow redirects. */
async function fetchHead(url: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), HEAD_TIMEOUT_MS);
  try {
    return await fetch(url, { ...init, redirect: "manual", signal: AbortSignal.any([signal, late.signal]) });
  } catch (cause) {
    signal.throwIfAborted();
    throw new TodoApiError(late.signal.aborted ? "timeout" : "network_error", "no response", { cause });
  } finally {
    clearTimeout(timer);
  }
}

async function printHead({ status, statusText, headers }: Response): Promise<void> {
  const lines = [`HTTP/1.1 ${status} ${statusText}`.trimEnd()];
  for (const [name, value] of headers) lines.push(`${name}: ${value}`);
  await writeStdout(`${lines.map(escapeControls).join("\n")}\n\n`);
}

/** Prints the exact bytes in a pipe. On a terminal, escapes control characters and ends with a line break. */
async function printBody(response: Response): Promise<void> {
  if (response.body === null) return;
  const isJson = /^application\/(?:.*\+)?json/.test(response.headers.get("content-type") ?? "");
  const decoder = new TextDecoder();
  let last = "\n";
  for await (const bytes of response.body) {
    if (!process.stdout.isTTY) {
      await writeStdout(bytes);
      continue;
    }
    const text = decoder.decode(bytes, { stream: true });
    last = text.at(-1) ?? last;
    await writeStdout(text.replace(/[^\n\t]+/g, isJson ? escapeControlsJson : escapeControls));
  }
  if (process.stdout.isTTY && last !== "\n") await writeStdout("\n");
}

/** The reader of the output has closed it, as `head` does. */
const isClosedPipe = (error: unknown): boolean => error instanceof Error && errnoOf(error.cause) === "EPIPE";

function describeStatus({ status, statusText, headers }: Response, token: string | undefined): string {
  if (status === 401) return describeUnauthorized(token);
  const location = headers.get("location");
  if (location === null) return `status ${status} ${statusText}`.trimEnd();
  return `status ${status}: the service redirects to ${location}, and todo api does not follow redirects`;
}
