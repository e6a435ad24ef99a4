import { type Identity, identityFields } from "../../credential/identity.ts";
import { ServiceError } from "../../error.ts";
import { parseTodoId } from "../../todo.ts";
import type { Log } from "../observability/log.ts";
import type { LogLimiter } from "../observability/log-limiter.ts";
import { traceId } from "../observability/trace.ts";
import { type Handler, isSafeMethod, type Route, type RoutedRequest } from "../route.ts";

/**
 * Returns a function that makes a route log every write of an identity, without its token. Rejected writes are limited per
 * identity, route and reason.
 */
export function createWriteLog(log: Log, limiter: LogLimiter) {
  const logRejected = limiter.topic((fields) => log.warn(fields, "write refused"));
  return (path: string, { handler, ...route }: Route): Route => {
    const logged = async (request: RoutedRequest, identity: Identity, write: ReturnType<Handler>) => {
      const { id, method } = request;
      try {
        const response = await write;
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
      ...route,
      handler: (request, server, identity) =>
        identity === undefined || isSafeMethod(request)
          ? handler(request, server, identity)
          : logged(request, identity, (async () => handler(request, server, identity))()),
    };
  };
}

/** Returns the id of the to-do that was written, as its JSON shows it. */
function getTodoId({ params }: RoutedRequest, { headers }: Response): string | undefined {
  const text = params.id ?? headers.get("Location")?.split("/").at(-1);
  return text === undefined ? undefined : String(parseTodoId(text));
}
