import { type Identity, identityFields, type Parent } from "../../credential/client.ts";
import { formatTime, isExpired, type Key, type KeyStore } from "../../credential/key.ts";
import {
  createLink,
  getKind,
  getOwner,
  getParent,
  isDeviceOf,
  isUnchecked,
  type Link,
  renameKey,
  type SignIn,
  type StoredEntry,
} from "../../credential/session.ts";
import { ServiceError } from "../../error.ts";
import { encodeQrCode, formatLink } from "../../sign-in-link.ts";
import { ownProperty } from "../../validation.ts";
import { BEARER_CHALLENGE } from "../auth/private.ts";
import { CLEARED_COOKIE, readSessionCookie, setSessionCookie } from "../auth/session-cookie.ts";
import type { Context } from "../context.ts";
import type { ConnectionInfo } from "../policy/connection.ts";
import { isOwnPage } from "../policy/origin.ts";
import { noContent, respond, respondJson } from "../response.ts";
import type { GuardedHandler } from "../route.ts";

/** Returns the handlers of a signed-in browser. Its session is an API key in a cookie. */
export function createSessionHandlers(keys: KeyStore, context: Context) {
  const { bodies, getConnectionInfo, log, now } = context;
  const { storedEntry } = context.credentials;

  const show: GuardedHandler = async (request, _server, identity) => {
    const parent = getParent(identity, storedEntry);
    const all = await keys.list();
    const devices = all.filter((key) => isDeviceOf(key, parent) && !isExpired(key, now()));
    const token = readSessionCookie(request);
    const json = {
      kind: getKind(parent),
      name: getOwner(parent, all),
      scope: identity.scope,
      devices: devices.map((key) => ({ ...describeDevice(key), isCurrent: key.id === identity.keyId })),
    };
    return respondJson(200, json, token === undefined ? {} : { "Set-Cookie": setSessionCookie(token) });
  };

  const signOut: GuardedHandler = async (_request, _server, { keyId = "", parent }) => {
    if (parent === undefined) throw new ServiceError("key_not_found", { detail: "No browser is signed in." });
    if (await keys.delete(keyId)) log.info({ key: keyId }, "signed out");
    return respond(204, { "Set-Cookie": CLEARED_COOKIE, "Clear-Site-Data": '"cache"' });
  };

  const revokeDevice: GuardedHandler = async ({ params: { id = "" } }, _server, identity) => {
    const parent = getParent(identity, storedEntry);
    const isOwn = (await keys.list()).some((key) => key.id === id && isDeviceOf(key, parent));
    if (!isOwn || !(await keys.delete(id))) throw new ServiceError("key_not_found");
    log.info({ device: id, ...identityFields(identity) }, "device signed out");
    return noContent();
  };

  const renameDevice: GuardedHandler = async (request, server, identity) => {
    const parent = getParent(identity, storedEntry);
    const all = await keys.list();
    const device = all.find((key) => key.id === request.params.id && isDeviceOf(key, parent));
    if (device === undefined) throw new ServiceError("key_not_found");
    const name = await bodies.readJson(request, server, (body) => ownProperty(body, "name"));
    const renamed = await renameKey(keys, device, name, all);
    log.info({ device: device.id, name: renamed.name, ...identityFields(identity) }, "device renamed");
    return respondJson(200, describeDevice(renamed));
  };

  const createDeviceLink: GuardedHandler = async (request, server, identity) => {
    const origin = requireOrigin(request, getConnectionInfo(request, server));
    const { parent, scope } = requireParent(identity, storedEntry);
    const maker: Parent = identity.keyId === undefined ? parent : { kind: "key", id: identity.keyId };
    const link = await createLink(keys, maker, scope, now());
    if (link === undefined) throw unauthorized("The credential was revoked. Sign in again.");
    log.info(identityFields(identity), "link created");
    return linkReply(origin, link);
  };

  return { show, signOut, revokeDevice, renameDevice, createDeviceLink };
}

/** Returns what another browser of an identity is made with. */
export function requireParent(identity: Identity, storedEntry: StoredEntry): SignIn {
  if (identity.isRevoked?.() === true) throw credentialChanged();
  // The next browser would be valid for 24 hours again, and nothing would end their series.
  if (identity.parent !== undefined && isUnchecked(identity.parent))
    throw new ServiceError("insufficient_scope", {
      detail: "Sign in on the other device with the user name and the password, or with the token.",
    });
  return { parent: getParent(identity, storedEntry), scope: identity.scope };
}

/** Returns the origin of the service as the sender knows it, for a link. */
export function requireOrigin(request: Request, { forwarding, isSecure }: ConnectionInfo): string {
  // Behind a proxy that is not trusted and terminates TLS, only the page knows the scheme.
  const origin = request.headers.get("origin");
  if (origin !== null && isOwnPage(request)) return origin;
  const url = URL.parse(request.url);
  if (url !== null) return forwarding === "used" && isSecure ? `https://${url.host}` : url.origin;
  throw new ServiceError("misdirected_host", { detail: "The link contains the Host, so send a valid one." });
}

export function linkReply(origin: string, { code, expiresAt }: Link): Response {
  const link = formatLink(origin, code);
  return respondJson(201, { link, qrCode: encodeQrCode(link), expiresAt: formatTime(expiresAt) });
}

export const credentialChanged = (): ServiceError =>
  unauthorized("The credential has changed. Sign in again.");

export const unauthorized = (detail: string): ServiceError =>
  new ServiceError("unauthorized", { detail, headers: { "WWW-Authenticate": BEARER_CHALLENGE } });

export const describeDevice = ({ id, name, createdAt, lastUsedAt }: Key) => ({
  id,
  name,
  createdAt: formatTime(createdAt),
  ...(lastUsedAt !== undefined && { lastUsedAt: formatTime(lastUsedAt) }),
});
