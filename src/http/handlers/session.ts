import { type Identity, identityFields } from "../../credential/identity.ts";
import { formatTime, type Key, type KeyStore } from "../../credential/key.ts";
import {
  createLink,
  createSession,
  findLink,
  isCurrent,
  kindOf,
  ownerOf,
  type Parent,
  parentOf,
  type StoredEntry,
} from "../../credential/session.ts";
import { ServiceError } from "../../error.ts";
import { encodeQrCode, formatLink } from "../../sign-in-link.ts";
import { ownProperty, validationError } from "../../validation.ts";
import { describeBrowser } from "../auth/browser.ts";
import type { Authenticator } from "../auth/private.ts";
import { CLEARED_COOKIE, readSessionCookie, setSessionCookie } from "../auth/session-cookie.ts";
import type { BodyReader } from "../body.ts";
import type { Log } from "../observability/log.ts";
import type { GetConnectionInfo } from "../policy/connection.ts";
import type { OriginPolicy } from "../policy/origin.ts";
import { respond } from "../response.ts";
import type { GuardedHandler, Handler, HttpServer } from "../route.ts";

export interface SessionOptions {
  readonly keys: KeyStore;
  readonly storedEntry: StoredEntry;
  readonly authenticator: Authenticator;
  readonly bodies: BodyReader;
  readonly origins: OriginPolicy;
  readonly getConnectionInfo: GetConnectionInfo;
  readonly log: Log;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** Returns the handlers of `/api/session` and below. A signed-in browser has an API key in a cookie. */
export function createSessionHandlers(options: SessionOptions) {
  const { keys, storedEntry, authenticator, bodies, origins, getConnectionInfo, log, now } = options;

  const signIn: Handler = async (request, server) => {
    if (!getConnectionInfo(request, server).isSecure) throw cookieNeedsHttps();
    origins.requireOwnPage(request);
    const parent = await authenticate(await bodies.readJson(request, server), request, server);
    const browser = describeBrowser(request.headers.get("user-agent") ?? "");
    const minted = await createSession(keys, parent, browser, now());
    if (minted === undefined) throw invalidLink();
    const { kind, name } = await describeOwner(parent.parent);
    log.info({ key: minted.key.id, [kind]: name }, "signed in");
    return reply(201, describeDevice(minted.key), { "Set-Cookie": setSessionCookie(minted.token) });
  };

  /** Says to whom a code belongs, so that the person can decide. The code stays valid. */
  const describeLink: Handler = async (request, server) => {
    origins.requireOwnPage(request);
    const { parent } = await requireLink(getText(await bodies.readJson(request, server), "code"));
    return reply(200, await describeOwner(parent));
  };

  const show: GuardedHandler<Identity> = async (request, identity) => {
    const { parent } = parentOf(identity, storedEntry);
    const devices = (await keys.list()).filter((key) => key.parent === parent);
    const token = readSessionCookie(request);
    const json = {
      ...(await describeOwner(parent)),
      scope: identity.scope,
      devices: devices.map((key) => ({ ...describeDevice(key), isCurrent: key.id === identity.keyId })),
    };
    return reply(200, json, token === undefined ? {} : { "Set-Cookie": setSessionCookie(token) });
  };

  const signOut: GuardedHandler<Identity> = async (_request, { keyId = "", parent }) => {
    if (parent === undefined) throw new ServiceError("key_not_found", { detail: "No browser is signed in." });
    await keys.delete(keyId);
    log.info({ key: keyId }, "signed out");
    return respond(204, { "Set-Cookie": CLEARED_COOKIE, "Clear-Site-Data": '"cache"' });
  };

  const revokeDevice: GuardedHandler<Identity> = async ({ params: { id = "" } }, identity) => {
    const { parent } = parentOf(identity, storedEntry);
    const isOwn = (await keys.list()).some((key) => key.id === id && key.parent === parent);
    if (!isOwn || !(await keys.delete(id))) throw new ServiceError("key_not_found");
    log.info({ device: id, ...identityFields(identity) }, "device signed out");
    return respond(204, {});
  };

  const createDeviceLink: GuardedHandler<Identity> = async (request, identity) => {
    const parent = parentOf(identity, storedEntry);
    const { code, expiresAt } = await createLink(keys, parent, now());
    log.info(identityFields(identity), "link created");
    // Behind a proxy that terminates TLS, only the page knows the scheme.
    const origin = request.headers.get("origin") ?? new URL(request.url).origin;
    const link = formatLink(origin, code);
    return reply(201, { link, qrCode: encodeQrCode(link), expiresAt: formatTime(expiresAt) });
  };

  return { signIn, describeLink, show, signOut, revokeDevice, createDeviceLink };

  async function authenticate(body: unknown, request: Request, server: HttpServer): Promise<Parent> {
    if (ownProperty(body, "code") !== undefined) {
      const { id, ...parent } = await requireLink(getText(body, "code"));
      // Only one request can delete the code, on any replica.
      if (!(await keys.delete(id))) throw invalidLink();
      return parent;
    }
    const isToken = ownProperty(body, "token") !== undefined;
    const identity = isToken
      ? await authenticator.client(getText(body, "token"), request, server)
      : await authenticator.user(getText(body, "user"), getText(body, "password"), request, server);
    return parentOf(identity, storedEntry);
  }

  async function requireLink(code: string) {
    const link = await findLink(keys, code, now());
    if (link === undefined || !isCurrent(link.parent, storedEntry)) throw invalidLink();
    return link;
  }

  async function describeOwner(parent: string) {
    return { kind: kindOf(parent), name: ownerOf(parent, await keys.list()) };
  }
}

function getText(body: unknown, field: string): string {
  const value = ownProperty(body, field);
  if (typeof value === "string") return value;
  throw validationError(field, value === undefined ? "is required" : "must be a string");
}

const invalidLink = (): ServiceError =>
  new ServiceError("unauthorized", {
    detail: "The link was used, has expired or was revoked. Create a new one.",
    headers: { "WWW-Authenticate": 'Bearer realm="todo"' },
  });

const cookieNeedsHttps = (): ServiceError =>
  new ServiceError("https_required", {
    detail: "Browsers store the cookie of a sign-in over HTTPS or from the server's own machine only.",
  });

const describeDevice = ({ id, name, createdAt, lastUsedAt }: Key) => ({
  id,
  name,
  createdAt: formatTime(createdAt),
  ...(lastUsedAt !== undefined && { lastUsedAt: formatTime(lastUsedAt) }),
});

const reply = (status: number, json: object, headers: Readonly<Record<string, string>> = {}): Response =>
  respond(status, { "Content-Type": "application/json", ...headers }, JSON.stringify(json));
