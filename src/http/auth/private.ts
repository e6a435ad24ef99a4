import { chain } from "../../awaitable.ts";
import { parseBasic, parseBearer } from "../../credential/authorization.ts";
import { clientIdentity, type Identity, userIdentity } from "../../credential/identity.ts";
import { isMintedToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { Awaitable } from "../../todo.ts";
import { type Guard, type HttpServer, isSafeMethod, type Route } from "../route.ts";
import type { GuardOptions } from "./access.ts";
import { basicChallenge, createLogin, httpsRequired } from "./basic.ts";
import { createTokenLookup, whyUnknown } from "./bearer.ts";

const REALM = "todo";
const BEARER_CHALLENGE = `Bearer realm="${REALM}"`;
const BASIC_CHALLENGE = basicChallenge(REALM);

/** The first scheme of a challenge. Assistants read only the first one, and have tokens. */
type FirstScheme = "Basic" | "Bearer";

/** Checks a credential wherever it comes from, and records and logs the outcome. Rejects as `privateGuard` does. */
export interface Authenticator {
  readonly client: (token: string, request: Request, server: HttpServer) => Awaitable<Identity>;
  readonly user: (user: string, password: string, request: Request, server: HttpServer) => Promise<Identity>;
  /** Rejects a malformed or a wrong credential. */
  readonly reject: (
    outcome: "malformed" | "wrong",
    reason: string,
    request: Request,
    server: HttpServer,
  ) => never;
}

export function createAuthenticator(options: GuardOptions, firstScheme: FirstScheme): Authenticator {
  const { getConnectionInfo, logRejection, recordOutcome } = options;
  const { storedEntry } = options.credentials;
  const lookup = createTokenLookup(options);
  const login = createLogin(options);
  const reject: Authenticator["reject"] = (outcome, reason, request, server) => {
    recordOutcome(outcome);
    logRejection(reason, getConnectionInfo(request, server).address);
    throw unauthorized(request, firstScheme, ', error="invalid_token"');
  };
  return {
    reject,
    client: (token, request, server) =>
      chain(lookup(token), (client) => {
        // Plain JavaScript may return a client without a name, to which no write could be attributed.
        if (typeof client?.name !== "string") return reject("wrong", whyUnknown(token), request, server);
        recordOutcome("passed");
        return clientIdentity(client);
      }),
    user: async (user, password, request, server) => {
      // Read before the check, so that a change during the check ends the user's streams.
      const entry = storedEntry("user", user);
      const { address } = getConnectionInfo(request, server);
      if (!(await login({ user, password }, address))) throw unauthorized(request, firstScheme, "");
      return userIdentity({ name: user }, () => storedEntry("user", user) !== entry);
    },
  };
}

/**
 * Returns the guard of private mode. It accepts a bearer token, a user's password (HTTP Basic), one of our tokens as the
 * password of any user name, and the token in the cookie of a browser if `readCookie` returns it. It rejects with
 * `unauthorized`, `https_required` or `too_many_failures`, and with `credentials_unavailable` if a check throws.
 */
export function privateGuard(
  { access, getConnectionInfo, logRejection, recordOutcome }: GuardOptions,
  firstScheme: FirstScheme,
  { client, user, reject }: Authenticator,
  readCookie: (request: Request) => string | undefined = () => undefined,
): Guard<Identity> {
  return (request, server) => {
    const authorization = request.headers.get("authorization");
    if (!access.allowBasicOverHttp && !getConnectionInfo(request, server).isSecure) {
      if (authorization === null) recordOutcome("absent");
      else {
        recordOutcome("in_clear");
        logRejection("in clear", getConnectionInfo(request, server).address);
      }
      throw httpsRequired();
    }
    const bearer = parseBearer(authorization);
    if (bearer.state === "presented") return client(bearer.credential, request, server);
    if (bearer.state === "malformed") return reject("malformed", "malformed", request, server);
    const basic = parseBasic(authorization);
    if (basic.state === "malformed") return reject("malformed", "malformed", request, server);
    if (basic.state === "presented") {
      const { user: name, password } = basic.credential;
      return isMintedToken(password)
        ? client(password, request, server)
        : user(name, password, request, server);
    }
    const token = readCookie(request);
    if (token !== undefined)
      return chain(client(token, request, server), (identity) =>
        // Only the keys of browsers count in a cookie.
        identity.parent === undefined ? reject("wrong", "unknown", request, server) : identity,
      );
    recordOutcome("absent");
    throw unauthorized(request, firstScheme, "");
  };
}

/**
 * Returns a function that checks each write to a route after the guard. It throws `insufficient_scope` for an identity that
 * may not write, and `cross_site_write` if a page of another origin sends Basic credentials.
 * @param requireSameOrigin throws `cross_site_write` if a page of another origin sends the request
 */
export function requireWriteScope(requireSameOrigin: (request: Request) => void): (route: Route) => Route {
  return ({ handler, ...route }) => ({
    ...route,
    handler: (request, server, identity) => {
      if (!isSafeMethod(request)) {
        // Plain JavaScript may return an unknown scope, which may not write.
        if (identity?.scope !== "write") throw insufficientScope();
        // Browsers send Basic credentials automatically, so a page of another origin could use them.
        const { state } = parseBearer(request.headers.get("authorization"));
        if (state !== "presented") requireSameOrigin(request);
      }
      return handler(request, server, identity);
    },
  });
}

const insufficientScope = (): ServiceError =>
  new ServiceError("insufficient_scope", {
    detail: "This token may only read. Use an API key with the scope write.",
    headers: { "WWW-Authenticate": `${BEARER_CHALLENGE}, error="insufficient_scope", scope="write"` },
  });

/** Returns the error with its challenges. A challenge to use Basic would open a dialog of the browser above the page's form. */
function unauthorized({ headers }: Request, firstScheme: FirstScheme, error: string): ServiceError {
  const bearer = BEARER_CHALLENGE + error;
  const both = firstScheme === "Basic" ? [BASIC_CHALLENGE, bearer] : [bearer, BASIC_CHALLENGE];
  const challenge = headers.has("sec-fetch-mode") ? bearer : both.join(", ");
  return new ServiceError("unauthorized", {
    headers: { "WWW-Authenticate": challenge, Vary: "Origin, Sec-Fetch-Mode" },
  });
}
