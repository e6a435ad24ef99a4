import { chain } from "../../awaitable.ts";
import { parseBasic, parseBearer } from "../../credential/authorization.ts";
import { isMintedToken } from "../../credential/token.ts";
import type { Guard } from "../route.ts";
import type { Authenticator } from "./authenticator.ts";
import { basicChallenge } from "./basic.ts";

const REALM = "todo";
export const BEARER_CHALLENGE = `Bearer realm="${REALM}"`;
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
      return reject("malformed", request, server);
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
      identity.parent === undefined ? reject("unknown", request, server) : identity,
    );
  };
}
