import { type BasicCredential, parseBasic } from "../../credential/authorization.ts";
import { isMintedToken } from "../../credential/token.ts";
import type { BasicUser } from "../../credential/user.ts";
import { ServiceError } from "../../error.ts";
import { networkPrefix } from "../policy/address.ts";
import type { Guard } from "../route.ts";
import type { GuardOptions } from "./access.ts";

/**
 * Returns a guard that authenticates users by password (RFC 7617). It rejects with `unauthorized`, `https_required` or
 * `too_many_failures`, and with `credentials_unavailable` if the check throws. Throws an Error for an invalid realm.
 */
export function basicGuard(options: GuardOptions): Guard<BasicUser> {
  const { access, getConnectionInfo, logRejection, recordOutcome } = options;
  const challenge = basicChallenge(access.realm);
  const login = createLogin(options);
  const unauthorized = (): ServiceError =>
    new ServiceError("unauthorized", { headers: { "WWW-Authenticate": challenge } });

  return async (request, server) => {
    const { address, isSecure } = getConnectionInfo(request, server);
    const authorization = parseBasic(request.headers.get("authorization"));
    const isAllowed = access.allowBasicOverHttp || isSecure;
    if (authorization.state === "absent") {
      recordOutcome("absent");
      throw isAllowed ? unauthorized() : httpsRequired();
    }
    if (!isAllowed) {
      recordOutcome("in_clear");
      logRejection("in clear", address);
      throw httpsRequired();
    }
    if (authorization.state === "malformed") {
      recordOutcome("malformed");
      logRejection("malformed", address);
      throw unauthorized();
    }
    const { credential } = authorization;
    // In private mode, browsers also send the token that they use for the list. It does not count as a failed login.
    if (access.privateMode && isMintedToken(credential.password)) {
      recordOutcome("wrong");
      logRejection("token", address);
      throw unauthorized();
    }
    if (!(await login(credential, address))) throw unauthorized();
    return { name: credential.user };
  };
}

/** Returns whether a password is the user's. Throws `too_many_failures` or `credentials_unavailable`. */
export type Login = (credential: BasicCredential, address: string) => Promise<boolean>;

/** Returns a function that checks passwords within the throttle, and records and logs the outcome. */
export function createLogin({ credentials, throttle, logRejection, recordOutcome }: GuardOptions): Login {
  return async ({ user, password }, address) => {
    const network = networkPrefix(address);
    const isAccepted = await throttle
      .attempt(network, user, () => check(user, password, network))
      .catch(async (error) => {
        const isThrottled = error instanceof ServiceError && error.code === "too_many_failures";
        recordOutcome(isThrottled ? "throttled" : "unavailable");
        if (isThrottled) logRejection("throttled", address);
        await throttle.delayRefusal();
        throw error;
      });
    if (isAccepted) {
      recordOutcome("passed");
      return true;
    }
    await throttle.delayRefusal();
    recordOutcome("wrong");
    logRejection("wrong", address);
    return false;
  };

  async function check(user: string, password: string, network: string): Promise<boolean> {
    try {
      return (await credentials.checkUser(user, password, network)) === true;
    } catch (cause) {
      throw cause instanceof ServiceError ? cause : new ServiceError("credentials_unavailable", { cause });
    }
  }
}

/** Returns the challenge for a password (RFC 7617 §2). Throws an Error for an invalid realm. */
export const basicChallenge = (realm: string): string =>
  `Basic realm="${validateRealm(realm).replace(/["\\]/g, "\\$&")}", charset="UTF-8"`;

/** Returns the realm. Throws an Error unless it is visible ASCII, as a header requires. */
export function validateRealm(realm: string): string {
  if (!/^[\x20-\x7e]+$/.test(realm)) throw new Error("a realm must be visible ASCII");
  return realm;
}

// Without a challenge, so that a browser does not ask for a password that it would send in clear text.
export function httpsRequired(): ServiceError {
  return new ServiceError("https_required", {
    detail:
      "Use HTTPS, or connect from the server's own machine. List a proxy that terminates TLS in TODO_TRUSTED_PROXY, and let it send X-Forwarded-Proto: https and remove Forwarded. TODO_ALLOW_BASIC_OVER_HTTP=on disables this check.",
  });
}
