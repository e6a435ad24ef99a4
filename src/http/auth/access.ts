import type { LookupClient } from "../../credential/client.ts";
import type { KeyStore } from "../../credential/key.ts";
import type { StoredEntry } from "../../credential/session.ts";
import type { CheckUser } from "../../credential/user.ts";
import type { RecordOutcome } from "../observability/instrumentation.ts";
import type { GetConnectionInfo } from "../policy/connection.ts";
import type { LoginThrottle } from "./login-throttle.ts";

/** The clients and users of a service. */
export interface Credentials {
  /** The API keys that `/admin/keys` manages. Without it, that path responds with 404. */
  readonly keys: KeyStore | undefined;
  /** Returns the client of a bearer token. By default, every token is rejected. */
  readonly lookupClient: LookupClient;
  /** Returns whether a user and a password match. By default, every password is rejected. */
  readonly checkUser: CheckUser;
  /**
   * Returns what is stored about a user or a client, such as a password hash, or `undefined`. In private mode, a change ends a
   * user's event streams and signs out browsers. By default, browsers stay signed in for 24 hours.
   */
  readonly storedEntry: StoredEntry;
}

export const NO_CREDENTIALS: Credentials = {
  keys: undefined,
  lookupClient: () => undefined,
  checkUser: () => false,
  storedEntry: () => undefined,
};

/** Which requests need credentials, and how those are sent. */
export interface Access {
  /**
   * Whether all data needs credentials: every path below `/api`, except `/api/openapi.json`, and `/mcp`; false by default.
   * Clients and users are accepted; below `/admin`, only users.
   */
  readonly privateMode: boolean;
  /** The Basic realm in visible ASCII; `todo admin` by default. */
  readonly realm: string;
  /** Consecutive wrong passwords per network and user before a 429; 100 by default, 0 for no limit. */
  readonly basicFailures: number;
  /** Whether to accept passwords, and in private mode tokens, over plain HTTP from other machines; false by default. */
  readonly allowBasicOverHttp: boolean;
}

export const DEFAULT_ACCESS: Access = {
  privateMode: false,
  realm: "todo admin",
  basicFailures: 100,
  allowBasicOverHttp: false,
};

export interface GuardOptions {
  readonly credentials: Credentials;
  readonly access: Access;
  readonly throttle: LoginThrottle;
  readonly getConnectionInfo: GetConnectionInfo;
  /** Logs a rejected credential with the reason and the client's IP address. */
  readonly logRejection: (reason: string, address: string) => void;
  readonly recordOutcome: RecordOutcome;
}
