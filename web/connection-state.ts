import { TodoApiError } from "../src/sdk/client.ts";
import { formatCount, formatTime } from "./messages.ts";
import type { LastList } from "./offline.ts";

/** Delay before the page reports a lost connection, so that short interruptions stay silent. */
const DISCONNECT_NOTICE_DELAY_MS = 800;

/** What the page knows about its connection to the service. */
export interface Connection {
  /** `interrupted`: lost, but not long enough to say so. `full`: the browser has no connection left for another stream. */
  readonly stream: "connecting" | "connected" | "interrupted" | "lost" | "full";
  /** Without a stream, requests succeed, and the page asks for changes. */
  readonly isPolling: boolean;
  /** Why the stream is not connected. */
  readonly error?: unknown;
  /** A request has no answer. */
  readonly isWaiting: boolean;
  /** Why a change could not be sent yet. */
  readonly sendError?: TodoApiError | undefined;
  /** The browser has a network. */
  readonly isOnline: boolean;
}

const isOffline = ({ stream, isPolling, isWaiting, sendError, isOnline }: Connection): boolean =>
  !isOnline || isWaiting || (stream === "lost" && !isPolling) || sendError !== undefined;

/** Says what keeps the list and the user's changes from being current. Returns an empty text if nothing does. */
export function describeConnection(connection: Connection, unsent: number, lastList?: LastList): string {
  const { stream, error, sendError } = connection;
  if (isOffline(connection) || lastList !== undefined) {
    const isBusy = [sendError, error].some(
      (one) => one instanceof TodoApiError && one.retryAfter !== undefined,
    );
    const subject = isBusy ? "The service is busy and asks to wait" : "Offline";
    const list = lastList === undefined ? "" : `, ${describeLastList(lastList)}`;
    const rest =
      unsent === 0
        ? "Changes made elsewhere will appear later."
        : `${formatCount(unsent)} ${unsent === 1 ? "change" : "changes"} will be sent later.`;
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

/** The connection as it changes. */
export class ConnectionState {
  readonly #onChange: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #value: Connection = {
    stream: "connecting",
    isPolling: false,
    isWaiting: false,
    isOnline: navigator.onLine,
  };

  constructor(onChange: () => void) {
    this.#onChange = onChange;
    for (const type of ["online", "offline"])
      addEventListener(type, () => this.set({ isOnline: navigator.onLine }));
  }

  get value(): Connection {
    return this.#value;
  }

  /** Whether requests arrive, as far as the page knows. */
  get canSend(): boolean {
    return !isOffline(this.#value);
  }

  set(change: Partial<Connection>): void {
    const { stream } = this.#value;
    this.#value = { ...this.#value, ...change };
    if (this.#value.stream !== stream) clearTimeout(this.#timer);
    this.#onChange();
  }

  /** The stream is lost. A short interruption changes no notice. */
  onDisconnected(error: unknown): void {
    const { stream } = this.#value;
    const isKnown = stream === "interrupted" || stream === "lost";
    this.set({ error, ...(!isKnown && { stream: "interrupted" }) });
    if (!isKnown) this.#timer = setTimeout(() => this.set({ stream: "lost" }), DISCONNECT_NOTICE_DELAY_MS);
  }
}
