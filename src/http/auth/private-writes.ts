import { parseBearer } from "../../credential/authorization.ts";
import { type Identity, identityFields } from "../../credential/client.ts";
import { ServiceError } from "../../error.ts";
import { parseTodoId } from "../../todo.ts";
import type { Context } from "../context.ts";
import { traceId } from "../observability/log.ts";
import {
  type GuardedHandler,
  type GuardedRoute,
  isSafeMethod,
  type Route,
  type RoutedRequest,
} from "../route.ts";
import { BEARER_CHALLENGE } from "./private.ts";

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
