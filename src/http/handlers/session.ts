import { type Identity, identityFields, type Parent } from "../../credential/client.ts";
import { findByToken, formatTime, isExpired, type Key, type KeyStore } from "../../credential/key.ts";
import {
  createLink,
  createSession,
  findLink,
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
import { describeBrowser } from "../../device-name.ts";
import { ServiceError } from "../../error.ts";
import { ownProperty, requireText } from "../../validation.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import { BEARER_CHALLENGE } from "../auth/private.ts";
import { CLEARED_COOKIE, readSessionCookie, setSessionCookie } from "../auth/session-cookie.ts";
import type { Context } from "../context.ts";
import type { ConnectionInfo } from "../policy/connection.ts";
import { isOwnPage, requireOwnPage } from "../policy/origin.ts";
import { noContent, respond, respondJson } from "../response.ts";
import type { GuardedHandler, Handler, HttpServer } from "../route.ts";

/** Returns the handlers that sign in a browser. It gets an API key in a cookie. */
export function createSignInHandlers(keys: KeyStore, authenticator: Authenticator, context: Context) {
  const { bodies, getConnectionInfo, log, now } = context;
  const { storedEntry } = context.credentials;

  const signIn: Handler = async (request, server) => {
    requireOwnSecurePage(request, server);
    const body = await bodies.readJson(request, server, (json) => json);
    const signedIn = await authenticate(body, request, server);
    const formerId = await findFormer(request);
    const browser = describeBrowser(request.headers.get("user-agent") ?? "");
    const minted = await createSession(keys, { ...signedIn, formerId }, browser, now());
    if (minted === undefined)
      throw signedIn.linkId === undefined ? credentialChanged() : invalidLink(request, server);
    log.info({ key: minted.key.id, [getKind(signedIn.parent)]: minted.owner }, "signed in");
    if (formerId !== undefined) log.info({ key: formerId }, "signed out");
    return respondJson(201, describeDevice(minted.key), { "Set-Cookie": setSessionCookie(minted.token) });
  };

  /** Says to whom a code belongs, so that the person can decide. The code stays valid. */
  const showLink: Handler = async (request, server) => {
    requireOwnSecurePage(request, server);
    const { owner } = await requireLink(await readCode(request, server), request, server);
    return respondJson(200, owner);
  };

  /** Makes a code invalid, because the person does not want to sign in with it. */
  const cancelLink: Handler = async (request, server) => {
    requireOwnSecurePage(request, server);
    const { linkId } = await requireLink(await readCode(request, server), request, server);
    if (!(await keys.delete(linkId))) throw invalidLink(request, server);
    log.info({ link: linkId }, "link cancelled");
    return noContent();
  };

  return { signIn, showLink, cancelLink };

  function requireOwnSecurePage(request: Request, server: HttpServer): void {
    if (!getConnectionInfo(request, server).isSecure)
      throw new ServiceError("https_required", {
        detail: "Browsers store the cookie of a sign-in over HTTPS or from the server's own machine only.",
      });
    requireOwnPage(request);
  }

  async function authenticate(body: unknown, request: Request, server: HttpServer): Promise<SignIn> {
    if (ownProperty(body, "code") !== undefined)
      return requireLink(requireText(body, "code"), request, server);
    const isToken = ownProperty(body, "token") !== undefined;
    const identity = isToken
      ? await authenticator.client(requireText(body, "token"), request, server)
      : await authenticator.user(requireText(body, "user"), requireText(body, "password"), request, server);
    return requireParent(identity, storedEntry);
  }

  function readCode(request: Request, server: HttpServer): Promise<string> {
    return bodies.readJson(request, server, (body) => requireText(body, "code"));
  }

  async function requireLink(code: string, request: Request, server: HttpServer) {
    const link = await findLink(keys, code, storedEntry, now());
    if (link === undefined) throw invalidLink(request, server);
    return link;
  }

  function invalidLink(request: Request, server: HttpServer): ServiceError {
    authenticator.recordRejection("code", request, server);
    return unauthorized(
      "The link was used, has expired or was revoked. Ask the person who sent it for a new one.",
    );
  }

  /** Returns the id of the key whose cookie the new one replaces. */
  async function findFormer(request: Request): Promise<string | undefined> {
    const token = readSessionCookie(request);
    const key = token === undefined ? undefined : await findByToken(keys, token);
    return key?.kind === "device" ? key.id : undefined;
  }
}

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
function requireParent(identity: Identity, storedEntry: StoredEntry): SignIn {
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

export async function linkReply(origin: string, { code, expiresAt }: Link): Promise<Response> {
  // Few servers need the QR code.
  const { encodeQrCode, formatLink } = await import("../../sign-in-link.ts");
  const link = formatLink(origin, code);
  return respondJson(201, { link, qrCode: encodeQrCode(link), expiresAt: formatTime(expiresAt) });
}

const credentialChanged = (): ServiceError => unauthorized("The credential has changed. Sign in again.");

const unauthorized = (detail: string): ServiceError =>
  new ServiceError("unauthorized", { detail, headers: { "WWW-Authenticate": BEARER_CHALLENGE } });

const describeDevice = ({ id, name, createdAt, lastUsedAt }: Key) => ({
  id,
  name,
  createdAt: formatTime(createdAt),
  ...(lastUsedAt !== undefined && { lastUsedAt: formatTime(lastUsedAt) }),
});
