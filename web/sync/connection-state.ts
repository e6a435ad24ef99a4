import type { TodoApiError } from "../../src/sdk/client.ts";

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

/** Returns whether requests do not arrive, as far as the page knows. */
export const isOffline = ({ stream, isPolling, isWaiting, sendError, isOnline }: Connection): boolean =>
  !isOnline || isWaiting || (stream === "lost" && !isPolling) || sendError !== undefined;

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
