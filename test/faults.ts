/**
 * What becomes of a request and its answer:
 * - `pass`: nothing;
 * - `late`: the answer comes after a while;
 * - `refuse`: the connection is closed, and the server never sees the request;
 * - `lose`: the server answers, and the connection is closed in place of the answer;
 * - `cut`: so it is within the answer;
 * - `twice`: the server gets the request twice at the same time, and the answer that is ready last goes back;
 * - `echo`: the answer is sent twice;
 * - `silent`: the server answers, and nothing at all comes back;
 * - `stale`: nothing comes back, and the server gets the request only long after;
 * - `busy`: a 503 whose outcome is known to nobody, for the server has got the request;
 * - `throttle`: a 429, and the server never sees the request.
 */
export const FAULTS = [
  "pass",
  "late",
  "refuse",
  "lose",
  "cut",
  "twice",
  "echo",
  "silent",
  "stale",
  "busy",
  "throttle",
] as const;
export type Fault = (typeof FAULTS)[number];
