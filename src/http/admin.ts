import { parseBasic } from "../credential/authorization.ts";
import type { BasicUser, CheckUser } from "../credential/user.ts";
import { Failure } from "../failure.ts";
import type { Log } from "./log.ts";
import { networkOf } from "./network.ts";
import type { RemoteOf } from "./remote.ts";
import { reply, text } from "./reply.ts";
import type { Guard, GuardedHandler } from "./route.ts";
import type { Throttle } from "./throttle.ts";

/** `/admin/`: greets the user. */
export const greet: GuardedHandler<BasicUser> = (_request, user) => text(`Hello, ${user.name}!`);

/** `/admin`: the surface is at `/admin/`. */
export const toAdmin: GuardedHandler<BasicUser> = () => reply(308, { Location: "/admin/" });

export interface BasicOptions {
  readonly checkUser: CheckUser;
  readonly realm: string;
  readonly throttle: Throttle;
  readonly remoteOf: RemoteOf;
  /** Take passwords in clear from anywhere; else only over TLS, or from this machine itself. */
  readonly allowBasicOverHttp: boolean;
  readonly log: Log;
}

/** Lets users with the right password pass (RFC 7617). */
export function basicGuard({
  checkUser,
  realm,
  throttle,
  remoteOf,
  allowBasicOverHttp,
  log,
}: BasicOptions): Guard<BasicUser> {
  const challenge = `Basic realm="${checkedRealm(realm).replace(/["\\]/g, "\\$&")}", charset="UTF-8"`;
  const unauthorized = (): Failure =>
    new Failure("unauthorized", { headers: { "WWW-Authenticate": challenge } });

  return async (request, peer) => {
    const { address, confidential } = remoteOf(request, peer);
    const presented = parseBasic(request.headers.get("authorization"));
    if (!allowBasicOverHttp && !confidential) {
      if (presented.state !== "absent") refused("in clear", address);
      throw inClear();
    }
    if (presented.state === "absent") throw unauthorized();
    if (presented.state === "presented") {
      const { user, password } = presented.credential;
      const network = networkOf(address);
      const passed = await throttle
        .guard(network, user, () => check(user, password, network))
        .catch(async (failure) => {
          if (failure instanceof Failure && failure.code === "too_many_failures")
            refused("throttled", address);
          await throttle.hold();
          throw failure;
        });
      if (passed) return { name: user };
      await throttle.hold();
    }
    refused(presented.state === "malformed" ? "malformed" : "wrong", address);
    throw unauthorized();
  };

  function refused(reason: string, address: string): void {
    log.warn({ surface: "basic", reason, address }, "credential refused");
  }

  async function check(user: string, password: string, network: string): Promise<boolean> {
    try {
      return (await checkUser(user, password, network)) === true;
    } catch (cause) {
      throw cause instanceof Failure ? cause : new Failure("credentials_unavailable", { cause });
    }
  }
}

/** A realm that can stand in a header; throws an Error for any other. */
export function checkedRealm(realm: string): string {
  if (!/^[\x20-\x7e]+$/.test(realm)) throw new Error("a realm must be visible ASCII");
  return realm;
}

/** No challenge: a browser must not ask for a password that would travel in clear. */
function inClear(): Failure {
  return new Failure("https_required", {
    detail:
      "Reach this over HTTPS, or from the server's own machine. A proxy that ends TLS must be listed in TODO_TRUSTED_PROXY and say so; TODO_ALLOW_BASIC_OVER_HTTP=on lifts this.",
  });
}
