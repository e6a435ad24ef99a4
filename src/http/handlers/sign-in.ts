import { findByToken, type KeyStore } from "../../credential/key.ts";
import { createSession, findLink, getKind, type SignIn } from "../../credential/session.ts";
import { describeBrowser } from "../../device-name.ts";
import { ServiceError } from "../../error.ts";
import { ownProperty, requireText } from "../../validation.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import { readSessionCookie, setSessionCookie } from "../auth/session-cookie.ts";
import type { Context } from "../context.ts";
import { requireOwnPage } from "../policy/origin.ts";
import { noContent, respondJson } from "../response.ts";
import type { Handler, HttpServer } from "../route.ts";
import { credentialChanged, describeDevice, requireParent, unauthorized } from "./session.ts";

/** Returns the handlers that sign in a browser. It gets an API key in a cookie. */
export function createSignInHandlers(keys: KeyStore, authenticator: Authenticator, context: Context) {
  const { bodies, getConnectionInfo, log, now } = context;
  const { storedEntry } = context.credentials;

  const signIn: Handler = async (request, server) => {
    requireOwnSecurePage(request, server);
    const parent = await authenticate(
      await bodies.readJson(request, server, (body) => body),
      request,
      server,
    );
    const browser = describeBrowser(request.headers.get("user-agent") ?? "");
    const minted = await createSession(keys, parent, browser, now());
    if (minted === undefined)
      throw parent.linkId === undefined ? credentialChanged() : invalidLink(request, server);
    log.info({ key: minted.key.id, [getKind(parent.parent)]: minted.owner }, "signed in");
    await endFormerSession(request);
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
    if (!getConnectionInfo(request, server).isSecure) throw cookieNeedsHttps();
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

  /** Ends the session of the cookie that the browser sends with a sign-in. The new cookie replaces that one. */
  async function endFormerSession(request: Request): Promise<void> {
    const token = readSessionCookie(request);
    const key = token === undefined ? undefined : await findByToken(keys, token);
    if (key?.kind !== "device" || !(await keys.delete(key.id))) return;
    log.info({ key: key.id }, "signed out");
  }
}

const cookieNeedsHttps = (): ServiceError =>
  new ServiceError("https_required", {
    detail: "Browsers store the cookie of a sign-in over HTTPS or from the server's own machine only.",
  });
