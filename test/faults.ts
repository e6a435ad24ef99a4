/**
 * What happens to a request and its response:
 * - `pass`: no fault;
 * - `late`: the response is delayed;
 * - `refuse`: the connection is closed before the server gets the request;
 * - `lose`: the server responds, and the connection is closed instead of sending the response;
 * - `cut`: the connection is closed in the middle of the response;
 * - `twice`: the server gets the request twice at the same time, and the later response is sent back;
 * - `echo`: the response is sent twice;
 * - `silent`: the server responds, and no byte is sent back;
 * - `stale`: no byte is sent back, and the server gets the request much later;
 * - `busy`: a 503 is sent back although the server got the request, so its outcome is unknown;
 * - `throttle`: a 429 is sent back, and the server never gets the request.
 */
export const FAULTS = [
  ...(["pass", "late", "refuse", "lose", "cut", "twice", "echo"] as const),
  ...(["silent", "stale", "busy", "throttle"] as const),
];
export type Fault = (typeof FAULTS)[number];
