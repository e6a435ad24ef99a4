import { readDeletion, toSegment } from "./exchange.ts";
import { isObject } from "./json.ts";
import type { Transport } from "./transport.ts";
import type { ApiKey, KeysApi, MintedApiKey } from "./types.ts";

const PATH = "/admin/keys";

/** Returns the calls of `/admin/keys` and below. */
export function createKeysApi(send: Transport["request"]): KeysApi {
  return {
    list: (options = {}) =>
      send({ method: "GET", path: PATH }, options, (_response, text) => {
        const keys: unknown = JSON.parse(text);
        if (Array.isArray(keys) && keys.every(isKey)) return keys;
        throw new SyntaxError("not a list of keys");
      }),
    create: (name, options = {}) => {
      const { expires, scope } = options;
      return send({ method: "POST", path: PATH, body: { name, expires, scope } }, options, readMinted);
    },
    rotate: async (id, options = {}) => {
      const { overlap } = options;
      return send({ method: "POST", path: `${keyPath(id)}/rotate`, body: { overlap } }, options, readMinted);
    },
    revoke: async (id, options = {}) => send({ method: "DELETE", path: keyPath(id) }, options, readDeletion),
  };
}

const keyPath = (id: string): string => `${PATH}/${toSegment(id, "key_not_found")}`;

function readMinted(_response: Response, text: string): MintedApiKey {
  const key: unknown = JSON.parse(text);
  if (isMinted(key)) return key;
  throw new SyntaxError("not a key with a token");
}

const isKey = (value: unknown): value is ApiKey =>
  isObject(value) && "name" in value && "id" in value && typeof value.id === "string";

const isMinted = (value: unknown): value is MintedApiKey =>
  isKey(value) && "token" in value && typeof value.token === "string";
