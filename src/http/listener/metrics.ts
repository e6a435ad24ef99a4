import { DEFAULT_LIMITS } from "../limits.ts";
import { createMiddleware } from "../middleware.ts";
import type { Log } from "../observability/log.ts";
import { LogLimiter } from "../observability/log-limiter.ts";
import type { Metrics } from "../observability/metrics.ts";
import { createConnectionInfoReader, DEFAULT_NETWORK } from "../policy/connection.ts";
import { createOriginPolicy } from "../policy/origin.ts";
import { respond } from "../response.ts";
import { notFoundRoute, publicRoute } from "../route.ts";
import type { Service } from "../service.ts";

/** Maximum concurrent scrapes. */
const MAX_SCRAPES = 100;

/** Returns a service with only `GET /metrics`, in Prometheus text format 0.0.4, for a separate port. */
export function createMetricsService(metrics: Metrics, onLoopback: boolean, log: Log): Service {
  const network = { ...DEFAULT_NETWORK, onLoopback };
  const getConnectionInfo = createConnectionInfoReader(network);
  const origins = createOriginPolicy(network, getConnectionInfo);
  const limiter = new LogLimiter();
  const middleware = createMiddleware({
    origins,
    log,
    limiter,
    accessLog: false,
    getConnectionInfo,
    limits: { ...DEFAULT_LIMITS, maxRequests: MAX_SCRAPES },
    monotonicNow: () => performance.now(),
    // Prometheus may use any name of the server.
    anyHostPaths: new Set(onLoopback ? [] : ["/metrics"]),
  });
  const headers = { "Content-Type": metrics.contentType };
  const scrape = publicRoute({ GET: async () => respond(200, headers, await metrics.text()) });
  const routes = {
    "/metrics": middleware.apply("/metrics", scrape),
    "/*": middleware.apply("/*", notFoundRoute),
  };
  return { routes, drain: middleware.drain, close: () => limiter.flush() };
}
