import { parseBasic } from "../credential/authorization.ts";
import type { BasicUser, CheckUser } from "../credential/user.ts";
import { Failure } from "../failure.ts";
import type { Log } from "./log.ts";
import { isLoopback } from "./loopback.ts";
import { networkOf } from "./network.ts";
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
  /** Take passwords in clear from anywhere; else only from this machine, and not through a proxy. */
  readonly allowBasicOverHttp: boolean;
  readonly log: Log;
}

/** Lets users with the right password pass (RFC 7617). */
export function basicGuard({
  checkUser,
  realm,
  throttle,
  allowBasicOverHttp,
  log,
}: BasicOptions): Guard<BasicUser> {
  const challenge = `Basic realm="${checkedRealm(realm).replace(/["\\]/g, "\\$&")}", charset="UTF-8"`;
  const unauthorized = (): Failure =>
    new Failure("unauthorized", { headers: { "WWW-Authenticate": challenge } });

  return async (request, peer) => {
    const address = peer.requestIP(request)?.address ?? "";
    const presented = parseBasic(request.headers.get("authorization"));
    if (!allowBasicOverHttp && !staysOnThisMachine(request, address)) {
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

const FORWARDED = /^(?:forwarded|x-forwarded-.*|x-real-ip|via)$/;

/** From loopback, and not sent on by a proxy there, whose own client may be anywhere. */
function staysOnThisMachine(request: Request, address: string): boolean {
  return isLoopback(address) && ![...request.headers.keys()].some((name) => FORWARDED.test(name));
}

/** No challenge: a browser must not ask for a password that would travel in clear. */
function inClear(): Failure {
  return new Failure("https_required", {
    detail:
      "Reach this over HTTPS, or from the server's own machine; TODO_ALLOW_BASIC_OVER_HTTP=on lifts this.",
  });
}
