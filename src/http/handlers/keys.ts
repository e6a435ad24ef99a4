import {
  createKey,
  formatTime,
  isKeyId,
  isListed,
  type Key,
  type KeyStore,
  type MintedKey,
  parseNewKey,
  parseOverlap,
  parseRotation,
  rotateKey,
} from "../../credential/key.ts";
import { createLink, getOwner, renameKey } from "../../credential/session.ts";
import { ServiceError } from "../../error.ts";
import { ownProperty } from "../../validation.ts";
import type { Context } from "../context.ts";
import { noContent, respondJson } from "../response.ts";
import type { GuardedHandler, RoutedRequest } from "../route.ts";
import { keysPage, prefersHtml } from "./pages.ts";
import { linkReply, requireOrigin } from "./session.ts";

/** Returns the handlers of `/admin/keys` and below. They log each write with its user and outcome. */
export function createKeyHandlers(keys: KeyStore, context: Context) {
  const { bodies, origins, getConnectionInfo, log, limiter, now } = context;
  const logRejection = limiter.topic((fields) => log.warn(fields, "key write refused"));
  return {
    list: async (request) => {
      if (prefersHtml(request)) return keysPage(request);
      const listed = (await keys.list()).filter((key) => isListed(key, now()));
      const json = listed.map((key) => asJson(key, listed));
      return respondJson(200, json, { Vary: "Origin, Accept" });
    },

    create: audited("create", async (request, server, user) => {
      const { name, lifetime, scope } = await bodies.readJson(request, server, parseNewKey);
      const minted = await createKey(keys, name, lifetime, now(), scope);
      if (minted === undefined) {
        throw new ServiceError("key_exists", {
          detail: "Rotate or revoke the key of this name; GET /admin/keys has its id.",
        });
      }
      log.info({ id: request.id, key: minted.key.id, client: name, user: user.name }, "key created");
      return mintedReply(minted, `keys/${minted.key.id}`);
    }),

    rotate: audited("rotate", async (request, server, user) => {
      const id = getKeyId(request);
      const overlap = (await bodies.readJsonIfAny(request, server, parseRotation)) ?? parseOverlap();
      const minted = await rotateKey(keys, id, overlap, now());
      if (minted === undefined) throw new ServiceError("key_not_found");
      const { id: successor, name: client } = minted.key;
      log.info({ id: request.id, key: id, successor, client, user: user.name }, "key rotated");
      return mintedReply(minted, `../${successor}`);
    }),

    rename: audited("rename", async (request, server, user) => {
      const all = await keys.list();
      const key = all.find(({ id, kind }) => id === getKeyId(request) && kind !== "link");
      if (key === undefined) throw new ServiceError("key_not_found");
      const name = await bodies.readJson(request, server, (body) => ownProperty(body, "name"));
      const renamed = await renameKey(keys, key, name, all);
      log.info({ id: request.id, key: key.id, client: renamed.name, user: user.name }, "key renamed");
      return respondJson(200, asJson(renamed, all));
    }),

    /** The key keeps its token, because the link makes a key of its own for a browser. */
    createLink: audited("create link", async (request, server, user) => {
      const origin = requireOrigin(request, getConnectionInfo(request, server));
      const key = (await keys.list()).find(({ id, kind }) => id === getKeyId(request) && kind === undefined);
      const link = key && (await createLink(keys, { kind: "key", id: key.id }, key.scope, now()));
      if (link === undefined) throw new ServiceError("key_not_found");
      log.info({ id: request.id, key: key?.id, client: key?.name, user: user.name }, "link created");
      return linkReply(origin, link);
    }),

    revoke: audited("revoke", async (request, _server, user) => {
      const id = getKeyId(request);
      if (!(await keys.delete(id))) throw new ServiceError("key_not_found");
      log.info({ id: request.id, key: id, user: user.name }, "key revoked");
      return noContent();
    }),
  } satisfies Record<string, GuardedHandler>;

  /** Returns a handler that rejects pages of other origins and logs each rejected write. */
  function audited(action: string, write: GuardedHandler): GuardedHandler {
    return async (request, server, user) => {
      try {
        origins.requireSameOrigin(request);
        return await write(request, server, user);
      } catch (error) {
        if (error instanceof ServiceError) {
          const fields = { action, reason: error.code, key: shownId(request), user: user.name };
          logRejection(JSON.stringify(fields), fields);
        }
        throw error;
      }
    };
  }
}

const getKeyId = (request: RoutedRequest): string => request.params.id ?? "";

/** Returns the id in the path, or `undefined` if it is not a key id, because it could be a token. */
const shownId = (request: RoutedRequest): string | undefined =>
  isKeyId(getKeyId(request)) ? getKeyId(request) : undefined;

const mintedReply = ({ key, token }: MintedKey, location: string): Response =>
  respondJson(201, { ...asJson(key), token }, { Location: location });

function asJson(
  { id, name, scope, createdAt, expiresAt, lastUsedAt, parent }: Key,
  all: readonly Key[] = [],
) {
  return {
    id,
    name,
    scope,
    createdAt: formatTime(createdAt),
    ...(expiresAt !== undefined && { expiresAt: formatTime(expiresAt) }),
    ...(lastUsedAt !== undefined && { lastUsedAt: formatTime(lastUsedAt) }),
    ...(parent !== undefined && { deviceOf: getOwner(parent, all) }),
    ...(parent?.kind === "key" && { parentId: parent.id }),
  };
}
