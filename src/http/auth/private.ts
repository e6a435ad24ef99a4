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

type FirstScheme = "Basic" | "Bearer";

/**
 * Returns the guard of private mode. It accepts a bearer token, a user's password (HTTP Basic), and one of our tokens as
 * the password of any user name. It rejects with `unauthorized`, `https_required` or `too_many_failures`, and with
 * `credentials_unavailable` if a check throws.
 * @param firstScheme the first scheme of the challenge. Chromium reads only the first one and asks for a password only for
 * Basic. Assistants read only the first one, too, and have tokens.
 */
export function privateGuard(options: GuardOptions, firstScheme: FirstScheme): Guard<Identity> {
  const { credentials, access, getConnectionInfo, logRejection, recordOutcome } = options;
  const { userEntry } = credentials;
  const lookup = createTokenLookup(options);
  const login = createLogin(options);

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
    if (bearer.state === "presented") return authenticateClient(bearer.credential, request, server);
    if (bearer.state === "malformed") return reject("malformed", "malformed", request, server);
    const basic = parseBasic(authorization);
    if (basic.state === "malformed") return reject("malformed", "malformed", request, server);
    if (basic.state === "presented") {
      const { user, password } = basic.credential;
      return isMintedToken(password)
        ? authenticateClient(password, request, server)
        : authenticateUser(user, password, request, server);
    }
    recordOutcome("absent");
    throw unauthorized(request, firstScheme, "");
  };

  function authenticateClient(token: string, request: Request, server: HttpServer): Awaitable<Identity> {
    return chain(lookup(token), (client) => {
      // Plain JavaScript may return a client without a name, to which no write could be attributed.
      if (typeof client?.name !== "string") return reject("wrong", whyUnknown(token), request, server);
      recordOutcome("passed");
      return clientIdentity(client);
    });
  }

  async function authenticateUser(
    user: string,
    password: string,
    request: Request,
    server: HttpServer,
  ): Promise<Identity> {
    // Read before the check, so that a change during the check ends the user's streams.
    const entry = userEntry(user);
    const { address } = getConnectionInfo(request, server);
    if (!(await login({ user, password }, address))) throw unauthorized(request, firstScheme, "");
    return userIdentity({ name: user }, () => userEntry(user) !== entry);
  }

  function reject(
    outcome: "malformed" | "wrong",
    reason: string,
    request: Request,
    server: HttpServer,
  ): never {
    recordOutcome(outcome);
    logRejection(reason, getConnectionInfo(request, server).address);
    throw unauthorized(request, firstScheme, ', error="invalid_token"');
  }
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

/**
 * Returns the error with its challenges. Only navigations and programs are asked for a password: a challenge to a
 * page's own request would open the browser's dialog before the page can explain.
 */
function unauthorized({ headers }: Request, firstScheme: FirstScheme, error: string): ServiceError {
  const mode = headers.get("sec-fetch-mode");
  const bearer = BEARER_CHALLENGE + error;
  const both = firstScheme === "Basic" ? [BASIC_CHALLENGE, bearer] : [bearer, BASIC_CHALLENGE];
  const challenge = mode === null || mode === "navigate" ? both.join(", ") : bearer;
  return new ServiceError("unauthorized", {
    headers: { "WWW-Authenticate": challenge, Vary: "Origin, Sec-Fetch-Mode" },
  });
}
