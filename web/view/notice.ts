import { TodoApiError } from "../../src/sdk/client.ts";
import type { LastList } from "../model/state.ts";
import { type Connection, isOffline } from "../sync/connection-state.ts";
import { formatCount, formatTime } from "./messages.ts";

/**
 * Says what keeps the list and the user's changes from being current. Returns an empty text if nothing does.
 * @param isStored the changes survive the page
 */
export function describeConnection(
  connection: Connection,
  unsent: number,
  isStored: boolean,
  lastList?: LastList,
): string {
  const { stream, error, sendError } = connection;
  if (isOffline(connection)) {
    const isBusy = [sendError, error].some(
      (one) => one instanceof TodoApiError && one.retryAfter !== undefined,
    );
    const subject = isBusy ? "The service is busy and asks to wait" : "Offline";
    const list = lastList === undefined ? "" : `, ${describeLastList(lastList)}`;
    const request = isStored ? "" : " Keep this page open until then.";
    const rest =
      unsent === 0
        ? "Changes made elsewhere will appear later."
        : `${formatCount(unsent)} ${unsent === 1 ? "change" : "changes"} will be sent later.${request}`;
    return `${subject}${list}. ${rest}`;
  }
  if (stream === "full")
    return "Too many windows show this list, so changes made elsewhere appear late here. Close another window, or use HTTPS.";
  if (stream === "lost")
    return "Something between this page and the service blocks live updates, so changes made elsewhere appear late.";
  return "";
}

function describeLastList({ todos, total, readAt }: LastList): string {
  const subject =
    todos.length < total ? `the newest ${formatCount(todos.length)} of ${formatCount(total)} to-dos` : "list";
  return `${subject} from ${formatTime(readAt)}`;
}
