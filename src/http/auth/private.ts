import { chain } from "../../awaitable.ts";
import { parseBasic, parseBearer } from "../../credential/authorization.ts";
import { type Identity, identityFields } from "../../credential/client.ts";
import { isMintedToken } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import { parseTodoId } from "../../todo.ts";
import type { Context } from "../context.ts";
import { traceId } from "../observability/log.ts";
import {
  type Guard,
  type GuardedHandler,
  type GuardedRoute,
  isSafeMethod,
  type Route,
  type RoutedRequest,
} from "../route.ts";
import type { Authenticator } from "./authenticator.ts";
import { basicChallenge } from "./one-scheme.ts";

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

/**
 * Returns a function that makes a route check and log every write, without its token. The check throws `insufficient_scope`
 * for an identity that may not write, and `cross_site_write` if a page of another origin sends Basic credentials. The log
 * limits rejected writes per identity, route and reason.
 */
export function createWriteGuard({ origins, log, limiter }: Context) {
  const logRejected = limiter.topic((fields) => log.warn(fields, "write refused"));
  return (path: string, { allow, handler }: Route): GuardedRoute => {
    const write: GuardedHandler = async (request, server, identity) => {
      const { id, method } = request;
      try {
        requireWriteScope(request, identity);
        const response = await handler(request, server, identity);
        const todo = getTodoId(request, response);
        const { status } = response;
        log.info({ id, method, todo, ...identityFields(identity), status, trace: traceId(request) }, "write");
        return response;
      } catch (error) {
        if (error instanceof ServiceError) {
          const rejected = { method, route: path, ...identityFields(identity), reason: error.code };
          logRejected(JSON.stringify(rejected), rejected);
        }
        throw error;
      }
    };
    return {
      allow,
      handler: (request, server, identity) =>
        (isSafeMethod(request) ? handler : write)(request, server, identity),
    };
  };

  function requireWriteScope(request: Request, { scope }: Identity): void {
    // Plain JavaScript may return an unknown scope, which may not write.
    if (scope !== "write") throw insufficientScope();
    // Browsers send Basic credentials automatically, so a page of another origin could use them.
    if (parseBearer(request.headers.get("authorization")).state !== "presented")
      origins.requireSameOrigin(request);
  }
}

const insufficientScope = (): ServiceError =>
  new ServiceError("insufficient_scope", {
    detail: "This token may only read. Use an API key with the scope write.",
    headers: { "WWW-Authenticate": `${BEARER_CHALLENGE}, error="insufficient_scope", scope="write"` },
  });

/** Returns the id of the to-do that was written, as its JSON shows it. */
function getTodoId({ params }: RoutedRequest, { headers }: Response): string | undefined {
  const text = params.id ?? headers.get("Location")?.split("/").at(-1);
  return text === undefined ? undefined : String(parseTodoId(text));
}
