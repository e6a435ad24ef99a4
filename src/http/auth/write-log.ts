import { type Identity, identityFields } from "../../credential/identity.ts";
import { ServiceError } from "../../error.ts";
import type { Log } from "../observability/log.ts";
import type { LogLimiter } from "../observability/log-limiter.ts";
import { traceId } from "../observability/trace.ts";
import { type Handler, isSafeMethod, type Route, type RoutedRequest } from "../route.ts";

/** Returns a route with every write of an identity logged. The log shows a key's id or a user, never a token. */
export type WithWriteLog = (path: string, route: Route) => Route;

/** Returns a function that logs the writes to a route. Rejected writes are limited per identity, route and reason. */
export function createWriteLog(log: Log, limiter: LogLimiter): WithWriteLog {
  const logRejected = limiter.topic((fields) => log.warn(fields, "write refused"));
  return (path, { handler, ...route }) => {
    const logged = async (request: RoutedRequest, identity: Identity, write: ReturnType<Handler>) => {
      const { method } = request;
      const fields = { method, route: path, ...identityFields(identity) };
      try {
        const response = await write;
        const { id } = request.params;
        const trace = traceId(request);
        log.info({ ...fields, ...(id !== undefined && { id }), status: response.status, trace }, "write");
        return response;
      } catch (error) {
        if (error instanceof ServiceError) {
          const rejected = { ...fields, reason: error.code };
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
