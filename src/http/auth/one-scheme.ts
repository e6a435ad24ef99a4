import { parseBasic, parseBearer } from "../../credential/authorization.ts";
import { isMintedToken } from "../../credential/token.ts";
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

/** Returns a guard that authenticates users by password (RFC 7617) over HTTPS. Throws an Error for an invalid realm. */
export function basicGuard(options: GuardOptions): Guard {
  const headers = { "WWW-Authenticate": basicChallenge(options.access.realm) };
  const { requireSecure, user, reject, rejectAbsent } = createAuthenticator(options, () => headers);
  return (request, server) => {
    requireSecure(request, server);
    const basic = parseBasic(request.headers.get("authorization"));
    if (basic.state === "absent") return rejectAbsent(request);
    if (basic.state === "malformed") return reject("malformed", request, server);
    const { user: name, password } = basic.credential;
    // In private mode, browsers also send the token that they use for the list. It does not count as a failed login.
    return options.access.privateMode && isMintedToken(password)
      ? reject("token", request, server)
      : user(name, password, request, server);
  };
}

/** Returns the challenge for a password (RFC 7617 §2). Throws an Error for an invalid realm. */
export const basicChallenge = (realm: string): string =>
  `Basic realm="${validateRealm(realm).replace(/["\\]/g, "\\$&")}", charset="UTF-8"`;

/** Returns the realm. Throws an Error unless it is visible ASCII, as a header requires. */
export function validateRealm(realm: string): string {
  if (!/^[\x20-\x7e]+$/.test(realm)) throw new Error("a realm must be visible ASCII");
  return realm;
}
