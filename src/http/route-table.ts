import type { Guards } from "./auth/guards.ts";
import type { Context } from "./context.ts";
import type { EventHandlers } from "./handlers/events.ts";
import { createKeyHandlers } from "./handlers/keys.ts";
import { asset, compressedJson, docsPage, favicon, home, serviceWorker } from "./handlers/pages.ts";
import { createSessionHandlers, createSignInHandlers } from "./handlers/session.ts";
import { createTodoHandlers } from "./handlers/todos.ts";
import { respond, text } from "./response.ts";
import {
  guardedRoute,
  guardedText,
  type Handler,
  notFoundRoute,
  publicRoute,
  type Route,
  uncachedRoute,
} from "./route.ts";

/** The handlers that need more than the context. */
export interface Handlers {
  readonly events: EventHandlers;
  readonly ready: Handler;
  /** The handler of `/mcp`; without it, that path responds with 404. */
  readonly mcp: Handler | undefined;
}

const openapi = compressedJson(async () =>
  JSON.stringify((await import("../../openapi.json", { with: { type: "json" } })).default),
);

/**
 * Returns the route of each path pattern. In private mode, the second argument of `publicRoute` says who may use a route, by
 * default programs; `open` routes contain no data.
 */
export function routeTable(
  context: Context,
  { bearer, basic, session, authenticator }: Guards,
  { events, ready, mcp }: Handlers,
): Readonly<Record<string, Route>> {
  const { keys } = context.credentials;
  const { privateMode } = context.access;
  const todos = createTodoHandlers(context);
  const admin = keys && createKeyHandlers(keys, context);
  const browser = privateMode &&
    keys !== undefined && {
      ...createSignInHandlers(keys, authenticator, context),
      ...createSessionHandlers(keys, context),
    };
  return {
    "/": publicRoute({ GET: home }, "open"),
    "/docs": publicRoute({ GET: docsPage }, "open"),
    "/assets/:name": publicRoute({ GET: asset }, "open"),
    "/service-worker.js": publicRoute({ GET: serviceWorker }, "open"),
    "/favicon.ico": publicRoute({ GET: favicon }, "open"),
    "/livez": publicRoute({ GET: () => text("ok\n") }, "open"),
    "/readyz": publicRoute({ GET: ready }, "open"),
    "/api/openapi.json": publicRoute({ GET: openapi }, "open"),

    "/api/todos": publicRoute({ GET: todos.list, POST: todos.create }, "browsers"),
    "/api/todos/:id": publicRoute({ GET: todos.get, PATCH: todos.update, DELETE: todos.delete }, "browsers"),
    "/api/events": publicRoute({ GET: events.follow }, "browsers"),
    "/mcp": mcp === undefined ? openNotFound : publicRoute({ POST: mcp }, "assistants"),

    "/api/whoami": guardedText(bearer, ({ name }) => name),
    "/api/whoami/*": guardedRoute(bearer),

    "/admin": guardedRoute(basic, { GET: () => respond(308, { Location: "admin/" }) }),
    "/admin/": guardedText(basic, ({ name }) => `Hello, ${name}!`),
    "/admin/keys": guardedRoute(basic, admin && { GET: admin.list, POST: admin.create }),
    "/admin/keys/:id": guardedRoute(basic, admin && { PATCH: admin.rename, DELETE: admin.revoke }),
    "/admin/keys/:id/rotate": guardedRoute(basic, admin && { POST: admin.rotate }),
    "/admin/keys/:id/links": guardedRoute(
      basic,
      admin && privateMode ? { POST: admin.createLink } : undefined,
    ),
    "/admin/*": guardedRoute(basic),

    ...(browser && {
      // Signing in needs no credentials beside the body.
      "/api/session": guardedRoute(
        session,
        { GET: browser.show, DELETE: browser.signOut },
        { POST: browser.signIn },
      ),
      "/api/session/link": uncachedRoute({ POST: browser.showLink }),
      "/api/session/link/cancel": uncachedRoute({ POST: browser.cancelLink }),
      "/api/session/links": guardedRoute(session, { POST: browser.createDeviceLink }),
      "/api/session/devices/:id": guardedRoute(session, {
        PATCH: browser.renameDevice,
        DELETE: browser.revokeDevice,
      }),
    }),

    "/api": notFoundRoute,
    "/api/*": notFoundRoute,
    "/*": openNotFound,
  };
}

/** Assistants look for OAuth at unknown paths and need a 404 there: a 401 would start a sign-in that cannot succeed. */
const openNotFound: Route = { ...notFoundRoute, inPrivateMode: "open" };
