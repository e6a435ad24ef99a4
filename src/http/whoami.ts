import { parseBearer } from "../credential/authorization.ts";
import type { Client, LookupClient } from "../credential/client.ts";
import { isMistyped } from "../credential/token.ts";
import { Failure } from "../failure.ts";
import type { Log } from "./log.ts";
import type { RemoteOf } from "./remote.ts";
import { text } from "./reply.ts";
import type { Guard, GuardedHandler } from "./route.ts";

const CHALLENGE = 'Bearer realm="todo api"';

/** `/api/whoami`: the client's name and nothing else. */
export const whoami: GuardedHandler<Client> = (_request, client) => text(client.name);

/** Lets known bearer tokens pass (RFC 6750): every failure is a 401, a failed look-up a 503. */
export function bearerGuard(lookupClient: LookupClient, remoteOf: RemoteOf, log: Log): Guard<Client> {
  return async (request, peer) => {
    const presented = parseBearer(request.headers.get("authorization"));
    if (presented.state === "absent") throw unauthorized(CHALLENGE);
    const client = presented.state === "presented" ? await lookup(presented.credential) : undefined;
    if (client !== undefined) return client;
    const reason = presented.state === "malformed" ? "malformed" : whyUnknown(presented.credential);
    log.warn({ surface: "bearer", reason, address: remoteOf(request, peer).address }, "credential refused");
    throw unauthorized(`${CHALLENGE}, error="invalid_token"`);
  };

  async function lookup(token: string): Promise<Client | undefined> {
    try {
      // Plain JavaScript may say null: that is nobody too.
      return (await lookupClient(token)) ?? undefined;
    } catch (cause) {
      throw new Failure("credentials_unavailable", { cause });
    }
  }
}

const whyUnknown = (token: string): string => (isMistyped(token) ? "mistyped" : "unknown");

function unauthorized(challenge: string): Failure {
  return new Failure("unauthorized", { headers: { "WWW-Authenticate": challenge } });
}
