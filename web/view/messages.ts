import { TodoApiError } from "../../src/sdk/client.ts";
import { isProxyFailure } from "../../src/sdk/retry.ts";
import type { Change, Rejection } from "../model/change.ts";
import { type Content, quote } from "./dom.ts";

/** The most titles that one message contains. */
const MAX_NAMES = 3;

const FAILED = {
  created: "could not be added",
  done: "could not be marked as done",
  open: "could not be reopened",
  deleted: "could not be deleted",
  cleared: "could not be deleted",
} as const;

export const formatCount = (count: number): string => count.toLocaleString("en");

/** Formats a count in little space: 1,234 is 1.2k. */
export const formatShortCount = (count: number): string =>
  count.toLocaleString("en", { notation: "compact" }).toLowerCase();

/** Formats a time as the language and the time zone of the browser do, with the date unless it is today. */
export function formatTime(time: Date): string {
  const isToday = time.toDateString() === new Date().toDateString();
  return time.toLocaleString(undefined, { ...(!isToday && { dateStyle: "medium" }), timeStyle: "short" });
}

export const countTodos = (count: number, kind = ""): string =>
  `${formatCount(count)} ${kind}${count === 1 ? "to-do" : "to-dos"}`;

/** Says what a change did, without a period. */
export function describeChange({ kind, targets }: Pick<Change, "kind" | "targets">): Content {
  const [first] = targets;
  const isOne = targets.length === 1 && first !== undefined;
  const name = isOne ? quote(first.title) : countTodos(targets.length);
  if (kind === "created") return ["Added ", name];
  if (kind === "deleted") return ["Deleted ", name];
  if (kind === "cleared") return [`Deleted ${countTodos(targets.length, "done ")}`];
  return kind === "open" ? ["Reopened ", name] : ["Marked ", name, " as done"];
}

/** Names to-dos: all of a few, the first ones of many. */
export function nameAll(titles: readonly string[]): Content {
  const names = titles.slice(0, MAX_NAMES).flatMap((title, index) => [index === 0 ? "" : ", ", quote(title)]);
  const others = titles.length - MAX_NAMES;
  return others > 0 ? [...names, ` and ${formatCount(others)} more`] : names;
}

/** Says which to-dos of a change the service rejected, and why. */
export function describeRejections({ kind }: Change, rejections: readonly Rejection[]): Content {
  const titles = rejections.map(({ target }) => target.title);
  return [...nameAll(titles), ` ${FAILED[kind]}: `, ...rejections.slice(0, 1).map(describeReason)];
}

function describeReason({ reason }: Rejection): string {
  if (reason === "gone") return "deleted elsewhere.";
  if (reason === "other") return "the service has another list since it restarted.";
  const [violation] = reason.fields;
  return violation === undefined ? errorMessage(reason) : `the title ${violation.message}.`;
}

const UNREACHABLE = "The service cannot be reached.";

/** Returns why a request failed, as a sentence. Throws what is not an error of the service. */
export function errorMessage(error: unknown): string {
  if (!(error instanceof TodoApiError)) throw error;
  const { code, status, detail, message } = error;
  if (detail !== undefined) return detail;
  if (code === "network_error" || code === "timeout") return UNREACHABLE;
  if (code !== "unexpected_answer") return `${message}.`;
  if (isProxyFailure(status)) return UNREACHABLE;
  // Browsers hide the status of a redirect.
  return `The response is not from the service (${status === 0 ? "a redirect" : `status ${status}`}).`;
}
