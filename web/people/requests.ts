import { TodoApiError } from "../../src/sdk/client.ts";
import { createTransport } from "../../src/sdk/transport.ts";

/** Sends a request once and without a time limit. The browser adds the credentials that it knows. */
export const { request } = createTransport({ retries: 0, timeoutMs: Number.POSITIVE_INFINITY });

/** Sends a request whose response is JSON. */
export const requestJson = <T>(method: string, path: string, body?: object): Promise<T> =>
  request({ method, path, body }, {}, (_response, text) => JSON.parse(text));

/** A signed-in browser. */
export interface Device {
  readonly id: string;
  readonly name: string;
  readonly lastUsedAt?: string;
  readonly isCurrent: boolean;
}

/** Who is signed in. */
export interface Session {
  readonly kind: "user" | "client";
  readonly name: string;
  /** `read`: to-dos cannot be changed. */
  readonly scope: "read" | "write";
  readonly devices: readonly Device[];
}

/** Names the person or the client that is signed in. All windows of the browser share this setting. */
export const OWNER = "owner";
/** A sign-in link, with its code. Other text may follow it where someone pastes a message. */
export const LINK = /#sign-in=(\w+)/;

/** Returns who is signed in, or why nobody is: only a private service has sessions. */
export async function readSession(): Promise<Session | "nobody" | "not private"> {
  try {
    return await requestJson<Session>("GET", "/api/session");
  } catch (error) {
    const code = error instanceof TodoApiError ? error.code : "";
    if (code === "unauthorized") return "nobody";
    if (code === "route_not_found") return "not private";
    throw error;
  }
}
