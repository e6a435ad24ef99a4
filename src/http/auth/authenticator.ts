import { chain, isThenable } from "../../awaitable.ts";
import type { Client } from "../../credential/client.ts";
import type { Identity } from "../../credential/identity.ts";
import { hasInvalidChecksum } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { Awaitable } from "../../todo.ts";
import { networkPrefix } from "../policy/address.ts";
import type { HttpServer } from "../route.ts";
import type { GuardOptions } from "./access.ts";

/** Checks a credential wherever it comes from, and records and logs the outcome. */
export interface Authenticator {
  /** Throws `https_required` unless credentials are accepted over this connection. */
  readonly requireSecure: (request: Request, server: HttpServer) => void;
  /** Rejects with `unauthorized` for an unknown token, and with `credentials_unavailable` if the lookup throws. */
  readonly client: (token: string, request: Request, server: HttpServer) => Awaitable<Identity>;
  /** Rejects with `unauthorized`, `too_many_failures`, or `credentials_unavailable` if the check throws. */
  readonly user: (user: string, password: string, request: Request, server: HttpServer) => Promise<Identity>;
  /** Rejects a malformed or a wrong credential. */
  readonly reject: (
    outcome: "malformed" | "wrong",
    reason: string,
    request: Request,
    server: HttpServer,
  ) => never;
  readonly rejectAbsent: (request: Request) => never;
}

/** @param challenge returns the headers of a 401; `error` is a parameter of a challenge to use Bearer (RFC 6750 §3) */
export function createAuthenticator(
  { access, credentials, throttle, getConnectionInfo, logRejection, recordOutcome }: GuardOptions,
  challenge: (error: string, request: Request) => Readonly<Record<string, string>>,
): Authenticator {
  const { lookupClient, checkUser, storedEntry } = credentials;
  const addressOf = (request: Request, server: HttpServer) => getConnectionInfo(request, server).address;
  const unauthorized = (request: Request, error = ""): ServiceError =>
    new ServiceError("unauthorized", { headers: challenge(error, request) });
  const unavailable = (cause: unknown): never => {
    recordOutcome("unavailable");
    throw new ServiceError("credentials_unavailable", { cause });
  };
  const reject: Authenticator["reject"] = (outcome, reason, request, server) => {
    recordOutcome(outcome);
    logRejection(reason, addressOf(request, server));
    throw unauthorized(request, ', error="invalid_token"');
  };
  return {
    requireSecure: (request, server) => {
      if (access.allowBasicOverHttp || getConnectionInfo(request, server).isSecure) return;
      const isPresent = request.headers.has("authorization");
      recordOutcome(isPresent ? "in_clear" : "absent");
      if (isPresent) logRejection("in clear", addressOf(request, server));
      throw httpsRequired();
    },
    client: (token, request, server) =>
      chain(lookup(token), (client) => {
        // Plain JavaScript may return null, or a client without a name, to which no write could be attributed.
        if (typeof client?.name !== "string") return reject("wrong", whyUnknown(token), request, server);
        recordOutcome("passed");
        const { name, scope = "write", keyId, parent, isRevoked } = client;
        return { kind: "client", name, scope, keyId, parent, isRevoked };
      }),
    user: async (name, password, request, server) => {
      // Read before the check, so that a change during the check ends the user's streams.
      const entry = storedEntry("user", name);
      const address = addressOf(request, server);
      if (!(await login(name, password, address))) throw unauthorized(request);
      const isRevoked = () => storedEntry("user", name) !== entry;
      return { kind: "user", name, scope: "write", keyId: undefined, isRevoked };
    },
    reject,
    rejectAbsent: (request) => {
      recordOutcome("absent");
      throw unauthorized(request);
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

  /** Returns whether a password is the user's. */
  async function login(user: string, password: string, address: string): Promise<boolean> {
    const network = networkPrefix(address);
    const isAccepted = await throttle
      .attempt(network, user, async () => (await checkUser(user, password, network)) === true)
      .catch(async (cause) => {
        const isThrottled = cause instanceof ServiceError && cause.code === "too_many_failures";
        recordOutcome(isThrottled ? "throttled" : "unavailable");
        if (isThrottled) logRejection("throttled", address);
        await throttle.delayRefusal();
        throw cause instanceof ServiceError ? cause : new ServiceError("credentials_unavailable", { cause });
      });
    if (isAccepted) {
      recordOutcome("passed");
      return true;
    }
    await throttle.delayRefusal();
    recordOutcome("wrong");
    logRejection("wrong", address);
    return false;
  }
}

/** Returns why a token has no client, for the log. */
const whyUnknown = (token: string): string => (hasInvalidChecksum(token) ? "mistyped" : "unknown");

// Without a challenge, so that a browser does not ask for a password that it would send in clear text.
const httpsRequired = (): ServiceError =>
  new ServiceError("https_required", {
    detail:
      "Use HTTPS, or connect from the server's own machine. List a proxy that terminates TLS in TODO_TRUSTED_PROXY, and let it send X-Forwarded-Proto: https and remove Forwarded. TODO_ALLOW_BASIC_OVER_HTTP=on disables this check.",
  });
