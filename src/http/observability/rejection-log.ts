import { networkPrefix } from "../policy/address.ts";
import type { Surface } from "./instrumentation.ts";
import type { Log } from "./log.ts";
import type { LogLimiter } from "./log-limiter.ts";

/** Logs a rejected credential with the reason and the client's IP address. */
export type LogRejection = (reason: string, address: string) => void;

/** Returns a function that logs rejected credentials of a surface, limited per network and reason. */
export function createRejectionLog(surface: Surface, log: Log, limiter: LogLimiter): LogRejection {
  const write = limiter.topic((fields) => log.warn({ surface, ...fields }, "credential refused"));
  return (reason, address) => write(`${reason} ${networkPrefix(address)}`, { reason, address });
}
