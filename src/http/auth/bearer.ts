import { isThenable } from "../../awaitable.ts";
import { parseBearer } from "../../credential/authorization.ts";
import type { Client, LookupClient } from "../../credential/client.ts";
import { hasInvalidChecksum } from "../../credential/token.ts";
import { ServiceError } from "../../error.ts";
import type { RecordOutcome } from "../observability/instrumentation.ts";
import type { LogRejection } from "../observability/rejection-log.ts";
import type { GetConnectionInfo } from "../policy/connection.ts";
import type { Guard } from "../route.ts";

const CHALLENGE = 'Bearer realm="todo api"';

export interface BearerOptions {
  readonly lookupClient: LookupClient;
  readonly getConnectionInfo: GetConnectionInfo;
  readonly logRejection: LogRejection;
  readonly recordOutcome: RecordOutcome;
}

/**
 * Returns a guard that authenticates clients by bearer token (RFC 6750). It rejects with `unauthorized`, and with
 * `credentials_unavailable` if the lookup throws.
 */
export function bearerGuard({
  lookupClient,
  getConnectionInfo,
  logRejection,
  recordOutcome,
}: BearerOptions): Guard<Client> {
  return (request, server) => {
    const authorization = parseBearer(request.headers.get("authorization"));
    if (authorization.state === "absent") {
      recordOutcome("absent");
      throw unauthorized(CHALLENGE);
    }
    const reject = (outcome: "malformed" | "wrong", reason: string): never => {
      recordOutcome(outcome);
      logRejection(reason, getConnectionInfo(request, server).address);
      throw unauthorized(`${CHALLENGE}, error="invalid_token"`);
    };
    if (authorization.state === "malformed") return reject("malformed", "malformed");
    const { credential } = authorization;
    // A lookup written in plain JavaScript may return null.
    const accept = (client: Client | null | undefined): Client => {
      if (client == null) return reject("wrong", whyUnknown(credential));
      recordOutcome("passed");
      return client;
    };
    const found = lookup(credential);
    return isThenable(found) ? Promise.resolve(found).catch(unavailable).then(accept) : accept(found);
  };

  function lookup(token: string): ReturnType<LookupClient> {
    try {
      return lookupClient(token);
    } catch (cause) {
      return unavailable(cause);
    }
  }

  function unavailable(cause: unknown): never {
    recordOutcome("unavailable");
    throw new ServiceError("credentials_unavailable", { cause });
  }
}

const whyUnknown = (token: string): string => (hasInvalidChecksum(token) ? "mistyped" : "unknown");

function unauthorized(challenge: string): ServiceError {
  return new ServiceError("unauthorized", { headers: { "WWW-Authenticate": challenge } });
}
