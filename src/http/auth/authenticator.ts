import { type Awaitable, chain, isThenable } from "../../awaitable.ts";
import type { Client, Identity, LookupClient } from "../../credential/client.ts";
import type { KeyStore } from "../../credential/key.ts";
import type { StoredEntry } from "../../credential/session.ts";
import { hasInvalidChecksum } from "../../credential/token.ts";
import type { CheckUser } from "../../credential/user.ts";
import { type ErrorCode, ServiceError } from "../../error.ts";
import type { AuthenticationOutcome, RecordOutcome } from "../observability/instrumentation.ts";
import { networkPrefix } from "../policy/address.ts";
import type { GetConnectionInfo } from "../policy/connection.ts";
import type { HttpServer } from "../route.ts";
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
  readonly getConnectionInfo: GetConnectionInfo;
  readonly throttle: LoginThrottle;
  /** Logs a rejected credential with the reason and the client's IP address. */
  readonly logRejection: (reason: string, address: string) => void;
  readonly recordOutcome: RecordOutcome;
}

export type Authenticator = ReturnType<typeof createAuthenticator>;

/**
 * Checks a credential wherever it comes from, and records and logs the outcome.
 * @param challenge returns the headers of a 401; `error` is a parameter of a challenge to use Bearer (RFC 6750 §3)
 */
export function createAuthenticator(
  { access, credentials, throttle, getConnectionInfo, logRejection, recordOutcome }: GuardOptions,
  challenge: (error: string, request: Request) => Readonly<Record<string, string>>,
) {
  const { lookupClient, checkUser, storedEntry } = credentials;
  const getAddress = (request: Request, server: HttpServer) => getConnectionInfo(request, server).address;
  const unauthorized = (request: Request, error = ""): ServiceError =>
    new ServiceError("unauthorized", { headers: challenge(error, request) });
  const unavailable = (cause: unknown): never => {
    recordOutcome("unavailable");
    throw new ServiceError("credentials_unavailable", { cause });
  };
  const recordRejection = (reason: string, request: Request, server: HttpServer): void => {
    recordOutcome(reason === "malformed" ? "malformed" : "wrong");
    logRejection(reason, getAddress(request, server));
  };
  /** Rejects a malformed or a wrong credential. */
  const reject = (reason: string, request: Request, server: HttpServer): never => {
    recordRejection(reason, request, server);
    throw unauthorized(request, ', error="invalid_token"');
  };
  return {
    reject,
    /** Records and logs a credential that another part rejects. */
    recordRejection,
    rejectAbsent: (request: Request): never => {
      recordOutcome("absent");
      throw unauthorized(request);
    },
    /** Throws `https_required` unless credentials are accepted over this connection. */
    requireSecure: (request: Request, server: HttpServer): void => {
      if (access.allowBasicOverHttp || getConnectionInfo(request, server).isSecure) return;
      const isPresent = request.headers.has("authorization");
      recordOutcome(isPresent ? "in_clear" : "absent");
      if (isPresent) logRejection("in clear", getAddress(request, server));
      throw httpsRequired();
    },
    /** Rejects with `unauthorized` for an unknown token, and with `credentials_unavailable` if the lookup throws. */
    client: (token: string, request: Request, server: HttpServer): Awaitable<Identity> =>
      chain(lookup(token), (client) => {
        // Plain JavaScript may return null, or a client without a name, to which no write could be attributed.
        if (typeof client?.name !== "string")
          return reject(hasInvalidChecksum(token) ? "mistyped" : "unknown", request, server);
        recordOutcome("passed");
        const { name, scope = "write", keyId, parent, isRevoked } = client;
        return { kind: "client", name, scope, keyId, parent, isRevoked };
      }),
    /** Rejects with `unauthorized`, `too_many_failures`, or `credentials_unavailable` if the check throws. */
    user: async (name: string, password: string, request: Request, server: HttpServer): Promise<Identity> => {
      // Read before the check, so that a change during the check ends the user's streams.
      const entry = storedEntry("user", name);
      const address = getAddress(request, server);
      const network = networkPrefix(address);
      const check = async () => (await checkUser(name, password, network)) === true;
      const failure = await throttle.attempt(network, name, check).then(
        (isRight) => (isRight ? undefined : unauthorized(request)),
        (cause) =>
          cause instanceof ServiceError ? cause : new ServiceError("credentials_unavailable", { cause }),
      );
      if (failure !== undefined) {
        const outcome = OUTCOMES[failure.code] ?? "unavailable";
        recordOutcome(outcome);
        if (outcome !== "unavailable") logRejection(outcome, address);
        await throttle.delayRefusal();
        throw failure;
      }
      recordOutcome("passed");
      const isRevoked = () => storedEntry("user", name) !== entry;
      return { kind: "user", name, scope: "write", keyId: undefined, isRevoked };
    },
  };

  function lookup(token: string): Awaitable<Client | undefined> {
    try {
      const found = lookupClient(token);
      return isThenable(found) ? Promise.resolve(found).catch(unavailable) : found;
    } catch (cause) {
      return unavailable(cause);
    }
  }
}

const OUTCOMES: Partial<Readonly<Record<ErrorCode, AuthenticationOutcome>>> = {
  unauthorized: "wrong",
  too_many_failures: "throttled",
};

// Without a challenge, so that a browser does not ask for a password that it would send in clear text.
const httpsRequired = (): ServiceError =>
  new ServiceError("https_required", {
    detail:
      "Use HTTPS, or connect from the server's own machine. List a proxy that terminates TLS in TODO_TRUSTED_PROXY, and let it send X-Forwarded-Proto: https and remove Forwarded. TODO_ALLOW_BASIC_OVER_HTTP=on disables this check.",
  });
