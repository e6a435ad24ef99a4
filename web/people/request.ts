import { createTransport } from "../../src/sdk/transport.ts";

/** Sends a request once and without a time limit. The browser adds the credentials that it knows. */
export const { request } = createTransport({ retries: 0, timeoutMs: Number.POSITIVE_INFINITY });

/** Sends a request whose response is JSON. */
export const requestJson = <T>(method: string, path: string, body?: object): Promise<T> =>
  request({ method, path, body }, {}, (_response, text) => JSON.parse(text));
