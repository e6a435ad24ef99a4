import type { TodoStore } from "../todo.ts";
import type { Access, Credentials } from "./auth/authenticator.ts";
import type { BodyReader } from "./json-body.ts";
import type { Limits } from "./limits.ts";
import type { Log } from "./observability/log.ts";
import type { LogLimiter } from "./observability/log-limiter.ts";
import type { GetConnectionInfo } from "./policy/connection.ts";
import type { OriginPolicy } from "./policy/origin.ts";

/** What the handlers and the checks of one service share. */
export interface Context {
  readonly store: TodoStore;
  readonly credentials: Credentials;
  readonly access: Access;
  readonly limits: Limits;
  readonly bodies: BodyReader;
  readonly origins: OriginPolicy;
  readonly getConnectionInfo: GetConnectionInfo;
  readonly log: Log;
  readonly limiter: LogLimiter;
  /** A steady clock in milliseconds. */
  readonly monotonicNow: () => number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}
