import type { Context } from "../context.ts";
import type { RecordOutcome, Surface } from "../observability/instrumentation.ts";
import { networkPrefix } from "../policy/address.ts";
import { isOwnPage } from "../policy/origin.ts";
import { type Guard, isSafeMethod } from "../route.ts";
import { createAuthenticator, type GuardOptions } from "./authenticator.ts";
import { createLoginThrottle } from "./login-throttle.ts";
import { basicGuard, bearerGuard } from "./one-scheme.ts";
import { privateChallenge, privateGuard } from "./private.ts";
import { readSessionCookie } from "./session-cookie.ts";

export type Guards = ReturnType<typeof createGuards>;

/** Returns the guards of one service. They share the count of wrong passwords. */
export function createGuards(context: Context, recordOutcome: (surface: Surface) => RecordOutcome) {
  const { access, limiter, log, monotonicNow, origins } = context;
  const throttle = createLoginThrottle(access.basicFailures, monotonicNow);
  const optionsOf = (surface: Surface): GuardOptions => {
    const write = limiter.topic((fields) => log.warn({ surface, ...fields }, "credential refused"));
    return {
      ...context,
      throttle,
      logRejection: (reason, address) => write(`${reason} ${networkPrefix(address)}`, { reason, address }),
      recordOutcome: recordOutcome(surface),
    };
  };
  const privateOptions = optionsOf("private");
  const authenticator = createAuthenticator(privateOptions, privateChallenge("Basic"));
  const browsers = privateGuard(authenticator, (request) =>
    isOwnPage(request) ? readSessionCookie(request) : undefined,
  );
  const session: Guard = (request, server) => {
    if (!isSafeMethod(request)) origins.requireSameOrigin(request);
    return browsers(request, server);
  };
  return {
    authenticator,
    /** Of `/api/whoami`. */
    bearer: bearerGuard(optionsOf("bearer")),
    /** Of `/admin`. */
    basic: basicGuard(optionsOf("basic")),
    /** Of `/api/session`, which accepts writes of the service's own pages only. */
    session,
    /** Of private mode: without the cookie of a browser, with it, and for assistants. */
    private: {
      programs: privateGuard(authenticator),
      browsers,
      assistants: privateGuard(createAuthenticator(privateOptions, privateChallenge("Bearer"))),
    },
  };
}
