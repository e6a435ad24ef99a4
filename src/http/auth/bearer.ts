import { chain, isThenable } from "../../awaitable.ts";
import { parseBearer } from "../../credential/authorization.ts";
import type { Client } from "../../credential/client.ts";
import { hasInvalidChecksum } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { Awaitable } from "../../todo.ts";
import type { Guard } from "../route.ts";
import type { GuardOptions } from "./access.ts";
import { httpsRequired } from "./basic.ts";

const CHALLENGE = 'Bearer realm="todo api"';

/**
 * Returns a guard that authenticates clients by bearer token (RFC 6750). It rejects with `unauthorized`, in private mode
 * with `https_required`, and with `credentials_unavailable` if the lookup throws.
 */
export function bearerGuard(options: GuardOptions): Guard<Client> {
  const { access, getConnectionInfo, logRejection, recordOutcome } = options;
  const acceptsHttp = !access.privateMode || access.allowBasicOverHttp;
  const lookup = createTokenLookup(options);
  return (request, server) => {
    const authorization = parseBearer(request.headers.get("authorization"));
    if (authorization.state === "absent") {
      recordOutcome("absent");
      throw unauthorized(CHALLENGE);
    }
    if (!acceptsHttp && !getConnectionInfo(request, server).isSecure) {
      recordOutcome("in_clear");
      logRejection("in clear", getConnectionInfo(request, server).address);
      throw httpsRequired();
    }
    const reject = (outcome: "malformed" | "wrong", reason: string): never => {
      recordOutcome(outcome);
      logRejection(reason, getConnectionInfo(request, server).address);
      throw unauthorized(`${CHALLENGE}, error="invalid_token"`);
    };
    if (authorization.state === "malformed") return reject("malformed", "malformed");
    const { credential } = authorization;
    return chain(lookup(credential), (client) => {
      if (client === undefined) return reject("wrong", whyUnknown(credential));
      recordOutcome("passed");
      return client;
    });
  };
}

/** Returns a lookup that throws `credentials_unavailable` if the given one throws. */
export function createTokenLookup({
  credentials,
  recordOutcome,
}: GuardOptions): (token: string) => Awaitable<Client | undefined> {
  return (token) => {
    const found = lookup(token);
    return isThenable(found) ? Promise.resolve(found).then(orUndefined, unavailable) : orUndefined(found);
  };

  function lookup(token: string): ReturnType<typeof credentials.lookupClient> {
    try {
      return credentials.lookupClient(token);
    } catch (cause) {
      return unavailable(cause);
    }
  }

  function unavailable(cause: unknown): never {
    recordOutcome("unavailable");
    throw new ServiceError("credentials_unavailable", { cause });
  }
}

// A lookup written in plain JavaScript may return null.
const orUndefined = (client: Client | null | undefined): Client | undefined => client ?? undefined;

/** Returns why a token has no client, for the log. */
export const whyUnknown = (token: string): string => (hasInvalidChecksum(token) ? "mistyped" : "unknown");

function unauthorized(challenge: string): ServiceError {
  return new ServiceError("unauthorized", { headers: { "WWW-Authenticate": challenge } });
}
