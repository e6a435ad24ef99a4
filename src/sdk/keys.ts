import { type Read, readDeletion, toSegment } from "./exchange.ts";
import { check, hasTexts } from "./json.ts";
import type { Transport } from "./transport.ts";
import type { ApiKey, KeysApi, MintedApiKey, SignInLink } from "./types.ts";

const PATH = "/admin/keys";

/** Returns the calls of `/admin/keys` and below. */
export function createKeysApi(send: Transport["request"]): KeysApi {
  return {
    list: (options) => send({ method: "GET", path: PATH }, options, reader(isKeys)),
    create: (name, options) => {
      const body = { name, expires: options?.expires, scope: options?.scope };
      return send({ method: "POST", path: PATH, body }, options, reader(isMinted));
    },
    rotate: async (id, options) => {
      const body = { overlap: options?.overlap };
      return send({ method: "POST", path: `${keyPath(id)}/rotate`, body }, options, reader(isMinted));
    },
    rename: async (id, name, options) =>
      send({ method: "PATCH", path: keyPath(id), body: { name } }, options, reader(isKey)),
    createLink: async (id, options) =>
      send({ method: "POST", path: `${keyPath(id)}/links` }, options, reader(isLink)),
    revoke: async (id, options) => send({ method: "DELETE", path: keyPath(id) }, options, readDeletion),
  };
}

const keyPath = (id: string): string => `${PATH}/${toSegment(id, "key_not_found")}`;

/** Returns a function that parses a response. It throws a SyntaxError for any other JSON. */
const reader =
  <T>(isValid: (value: unknown) => value is T): Read<T> =>
  (_response, text) => {
    const value: unknown = JSON.parse(text);
    check(isValid(value));
    return value;
  };

const isKey = (value: unknown): value is ApiKey => hasTexts(value, "id", "name");

const isKeys = (value: unknown): value is readonly ApiKey[] => Array.isArray(value) && value.every(isKey);

const isMinted = (value: unknown): value is MintedApiKey => hasTexts(value, "id", "name", "token");

const isLink = (value: unknown): value is SignInLink => hasTexts(value, "link", "expiresAt");
