import { setTimeout as sleep } from "node:timers/promises";
import { ServiceError } from "../error.ts";
import type { Route } from "./route.ts";

/** A slow and failing service, to test clients. */
export interface Simulation {
  /** How long each request waits, in milliseconds. */
  readonly latencyMs: number;
  /** The share of requests that fail, from 0 to 1. */
  readonly errorRate: number;
}

const MAX_LATENCY_MS = 60_000;
/** Longer than the longest latency. The runtime's idle timeout also runs while a request waits. */
const IDLE_SECONDS = 120;

/** Parses `latency=200ms,errors=10%`. Each part may be absent. Throws an Error that says what is wrong. */
export function parseSimulation(text: string): Simulation {
  const [, digits, unit, percent] =
    /^(?=.)(?:latency=(\d+)(ms|s)(?:,(?=.)|$))?(?:errors=(\d+(?:\.\d+)?)%)?$/.exec(text) ?? [];
  const latencyMs = Number(digits ?? 0) * (unit === "s" ? 1000 : 1);
  const errorRate = Number(percent ?? 0) / 100;
  const isEmpty = digits === undefined && percent === undefined;
  if (isEmpty || latencyMs > MAX_LATENCY_MS || errorRate > 1)
    throw new Error("must be like latency=200ms,errors=10%, with at most 60s and 100%");
  return { latencyMs, errorRate };
}

/**
 * Returns a route below `/api` with the simulation applied. A request fails before the store is asked, so that nothing is
 * stored. Event streams and sign-in are exempt.
 */
export function simulate(path: string, route: Route, { latencyMs, errorRate }: Simulation): Route {
  if (!/^\/api\/(?!events|session)/.test(path)) return route;
  return {
    ...route,
    handler: async (request, server, identity) => {
      server.timeout(request, IDLE_SECONDS);
      await sleep(latencyMs);
      if (Math.random() < errorRate)
        throw new ServiceError("internal_error", { detail: "This failure is simulated (--simulate)." });
      return route.handler(request, server, identity);
    },
  };
}
