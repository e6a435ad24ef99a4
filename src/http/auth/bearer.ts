import { parseBearer } from "../../credential/authorization.ts";
import type { Guard } from "../route.ts";
import { createAuthenticator, type GuardOptions } from "./authenticator.ts";

const CHALLENGE = 'Bearer realm="todo api"';

/** Returns a guard that authenticates clients by bearer token (RFC 6750). In private mode, it requires HTTPS. */
export function bearerGuard(options: GuardOptions): Guard {
  const authenticator = createAuthenticator(options, (error) => ({ "WWW-Authenticate": CHALLENGE + error }));
  const { requireSecure, client, reject, rejectAbsent } = authenticator;
  return (request, server) => {
    const bearer = parseBearer(request.headers.get("authorization"));
    if (bearer.state === "absent") return rejectAbsent(request);
    if (options.access.privateMode) requireSecure(request, server);
    return bearer.state === "presented"
      ? client(bearer.credential, request, server)
      : reject("malformed", request, server);
  };
}
