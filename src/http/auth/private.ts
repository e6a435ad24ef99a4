import { chain } from "../../awaitable.ts";
import { parseBasic, parseBearer } from "../../credential/authorization.ts";
import { isMintedToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { type Guard, isSafeMethod, type Route } from "../route.ts";
import type { Authenticator } from "./authenticator.ts";
import { basicChallenge } from "./basic.ts";

const REALM = "todo";
const BEARER_CHALLENGE = `Bearer realm="${REALM}"`;
const BASIC_CHALLENGE = basicChallenge(REALM);

/**
 * Returns the function that makes the challenge of private mode. A challenge to use Basic would open a dialog of the browser
 * above the page's form.
 * @param firstScheme assistants read only the first one, and have tokens
 */
export const privateChallenge =
  (firstScheme: "Basic" | "Bearer") =>
  (error: string, { headers }: Request) => {
    const bearer = BEARER_CHALLENGE + error;
    const both = firstScheme === "Basic" ? [BASIC_CHALLENGE, bearer] : [bearer, BASIC_CHALLENGE];
    const challenge = headers.has("sec-fetch-mode") ? bearer : both.join(", ");
    return { "WWW-Authenticate": challenge, Vary: "Origin, Sec-Fetch-Mode" };
  };

/**
 * Returns the guard of private mode. It accepts a bearer token, a user's password (HTTP Basic), one of our tokens as the
 * password of any user name, and the token in the cookie of a browser if `readCookie` returns it.
 */
export function privateGuard(
  { requireSecure, client, user, reject, rejectAbsent }: Authenticator,
  readCookie: (request: Request) => string | undefined = () => undefined,
): Guard {
  return (request, server) => {
    requireSecure(request, server);
    const authorization = request.headers.get("authorization");
    const bearer = parseBearer(authorization);
    if (bearer.state === "presented") return client(bearer.credential, request, server);
    const basic = parseBasic(authorization);
    if (bearer.state === "malformed" || basic.state === "malformed")
      return reject("malformed", "malformed", request, server);
    if (basic.state === "presented") {
      const { user: name, password } = basic.credential;
      return isMintedToken(password)
        ? client(password, request, server)
        : user(name, password, request, server);
    }
    const token = readCookie(request);
    if (token === undefined) return rejectAbsent(request);
    return chain(client(token, request, server), (identity) =>
      // Only the keys of browsers count in a cookie.
      identity.parent === undefined ? reject("wrong", "unknown", request, server) : identity,
    );
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
