import {
  createKey,
  formatTime,
  isKeyId,
  type Key,
  type KeyStore,
  type MintedKey,
  parseNewKey,
  parseOverlap,
  parseRotation,
  rotateKey,
} from "../credential/key.ts";
import type { BasicUser } from "../credential/user.ts";
import { Failure } from "../failure.ts";
import { readJson, readJsonIfAny } from "./body.ts";
import type { Log } from "./log.ts";
import { keysPage, prefersHtml } from "./pages.ts";
import { created, noContent, reply } from "./reply.ts";
import type { GuardedHandler, RoutedRequest } from "./route.ts";

export interface KeyOptions {
  readonly keys: KeyStore;
  /** Throws when a write comes from where none may. */
  readonly requireSameOrigin: (request: Request) => void;
  readonly log: Log;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** The handlers of `/admin/keys` and what is below it. Each write is logged with who asked for it, and its outcome. */
export function keyHandlers({ keys, requireSameOrigin, log, now }: KeyOptions) {
  return {
    list: async (request) => {
      if (prefersHtml(request)) return keysPage(request);
      const headers = { "Content-Type": "application/json", Vary: "Origin, Accept" };
      return reply(200, headers, JSON.stringify((await keys.list()).map(asJson)));
    },

    create: audited("create", async (request, user) => {
      const { name, lifetime } = parseNewKey(await readJson(request));
      const minted = await createKey(keys, name, lifetime, now());
      if (minted === undefined) {
        throw new Failure("key_exists", {
          detail: "Rotate or revoke the key of this name; GET /admin/keys has its id.",
        });
      }
      log.info({ key: minted.key.id, user: user.name }, "key created");
      return mintedReply(minted);
    }),

    rotate: audited("rotate", async (request, user) => {
      const id = idOf(request);
      const minted = await rotateKey(keys, id, await readOverlap(request, id), now());
      if (minted === undefined) throw notFound();
      log.info({ key: id, successor: minted.key.id, user: user.name }, "key rotated");
      return mintedReply(minted);
    }),

    revoke: audited("revoke", async (request, user) => {
      const id = idOf(request);
      if (!(await keys.delete(id))) throw notFound();
      log.info({ key: id, user: user.name }, "key revoked");
      return noContent();
    }),
  } satisfies Record<string, GuardedHandler<BasicUser>>;

  /** A write that only pages of this server may ask for; logs why one is refused. */
  function audited(action: string, write: GuardedHandler<BasicUser>): GuardedHandler<BasicUser> {
    return async (request, user) => {
      try {
        requireSameOrigin(request);
        return await write(request, user);
      } catch (error) {
        if (error instanceof Failure) {
          log.warn(
            { action, reason: error.code, key: shownId(request), user: user.name },
            "key write refused",
          );
        }
        throw error;
      }
    };
  }

  /** No body asks for the default. An absent key wins over a bad body; only a bad body has to look. */
  async function readOverlap(request: Request, id: string): Promise<number> {
    try {
      const body = await readJsonIfAny(request);
      return body === undefined ? parseOverlap() : parseRotation(body);
    } catch (error) {
      if ((await keys.list()).every((key) => key.id !== id)) throw notFound();
      throw error;
    }
  }
}

const idOf = (request: RoutedRequest): string => request.params.id ?? "";

/** What stands for an id in a path, if it can be one: someone may have put a token there. */
function shownId(request: RoutedRequest): string | undefined {
  const id = idOf(request);
  return isKeyId(id) ? id : undefined;
}

const notFound = (): Failure => new Failure("key_not_found");

const mintedReply = ({ key, token }: MintedKey): Response =>
  created(JSON.stringify({ ...asJson(key), token }), `/admin/keys/${key.id}`);

function asJson({ id, name, createdAt, expiresAt, lastUsedAt }: Key) {
  return {
    id,
    name,
    createdAt: formatTime(createdAt),
    ...(expiresAt !== undefined && { expiresAt: formatTime(expiresAt) }),
    ...(lastUsedAt !== undefined && { lastUsedAt: formatTime(lastUsedAt) }),
  };
}
