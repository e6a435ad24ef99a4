import contract from "../../openapi.json" with { type: "json" };
import type { LookupClient } from "../credential/client.ts";
import type { KeyStore } from "../credential/key.ts";
import type { CheckUser } from "../credential/user.ts";
import type { TodoStore } from "../todo.ts";
import { basicGuard, greet, toAdmin } from "./admin.ts";
import { openDoor } from "./door.ts";
import { eventHandlers } from "./events.ts";
import { healthHandlers } from "./health.ts";
import { keyHandlers } from "./keys.ts";
import { type Log, SILENT } from "./log.ts";
import { type Observer, observedBy } from "./observe.ts";
import { originPolicy } from "./origin.ts";
import { asset, docsPage, prefersHtml, todosPage } from "./pages.ts";
import { remoteReader } from "./remote.ts";
import { json, reply } from "./reply.ts";
import { guarded, type Handler, nowhere, open, type Route } from "./route.ts";
import { Throttle } from "./throttle.ts";
import { todoHandlers } from "./todos.ts";
import { bearerGuard, whoami } from "./whoami.ts";

export interface ServiceOptions {
  readonly store: TodoStore;
  /** The keys that /admin/keys manages; without them, there is no such path. */
  readonly keys?: KeyStore;
  /** Who a bearer token belongs to; without it, nobody passes. */
  readonly lookupClient?: LookupClient;
  /** Whether a password is the user's; without it, nobody passes. */
  readonly checkUser?: CheckUser;
  readonly realm?: string;
  /** Take passwords over plain HTTP from other machines too. */
  readonly allowBasicOverHttp?: boolean;
  /** Addresses and CIDR blocks of proxies whose word on who their client is, and how it came, is taken. */
  readonly trustedProxies?: readonly string[];
  /** Wrong passwords in a row, per address and user, before a 429; 0 for no limit. */
  readonly basicFailures?: number;
  /** Whether it is reached over loopback only: then it answers for loopback's names and origins alone. */
  readonly onLoopback?: boolean;
  readonly allowedHosts?: readonly string[];
  readonly corsOrigins?: readonly string[];
  readonly log?: Log;
  /** Write a line for each request. */
  readonly accessLog?: boolean;
  /** Told what happens, such as for metrics; without it, nothing is measured. */
  readonly observer?: Observer;
  /** How many requests may wait for their answer: of each path, so many that read, and as many that write. */
  readonly maxRequests?: number;
  /** How many streams of events may be open. */
  readonly maxSubscribers?: number;
  /** Milliseconds between two heartbeats of an event stream. */
  readonly heartbeatMs?: number;
  /** Milliseconds of a steady clock. */
  readonly now?: () => number;
  /** Milliseconds since 1970. */
  readonly date?: () => number;
}

/** The to-do service, to be served by `listen(service, …)`. */
export interface Service {
  readonly routes: Readonly<Record<string, Handler>>;
  /** From now on it is not ready. */
  readonly retire: () => void;
  /** From now on it is not ready, each response closes its connection, and event streams end. */
  readonly drain: () => void;
}

const ABOUT = `This is a to-do service.

GET  /api/todos          the to-dos; POST one: {"title": "buy milk"}
GET  /api/events         each change to them, as it happens
GET  /api/whoami         your name, for a bearer token
GET  /admin/             a greeting, for a user and a password
GET  /api/openapi.json   all of it, as OpenAPI; for people at /docs

In a browser, this is the list itself.
`;

const about = (): Response =>
  reply(200, { "Content-Type": "text/plain; charset=utf-8", Vary: "Origin, Accept" }, ABOUT);

export function createService(options: ServiceOptions): Service {
  const { keys, observer, log = SILENT, realm = "todo admin" } = options;
  const { now = () => performance.now(), date = Date.now } = options;
  const { allowBasicOverHttp = false, basicFailures = 100, accessLog = false } = options;
  const { maxRequests = 5000, maxSubscribers = 1000, heartbeatMs = 15_000 } = options;
  const { onLoopback = false, allowedHosts = [], corsOrigins = [] } = options;
  const { trustedProxies = [] } = options;
  const { lookupClient = () => undefined, checkUser = () => false } = options;

  const observed = observedBy(observer, now);
  const store = observed.store(options.store);
  const origins = originPolicy({ onLoopback, allowedHosts, corsOrigins });
  const door = openDoor({ origins, log, accessLog, maxRequests, now });
  const todos = todoHandlers(store, log);
  const events = eventHandlers({ store, log, maxSubscribers, heartbeatMs, now });
  let isRetired = false;
  const health = healthHandlers(store, () => isRetired);
  const openapi = JSON.stringify(contract);
  const remoteOf = remoteReader(trustedProxies);
  const bearer = observed.guard("bearer", bearerGuard(lookupClient, remoteOf, log));
  const throttle = new Throttle(basicFailures, now);
  const basic = observed.guard(
    "basic",
    basicGuard({ checkUser, realm, throttle, remoteOf, allowBasicOverHttp, log }),
  );
  observer?.subscribers(events.count);

  const { requireSameOrigin } = origins;
  const admin = keys && keyHandlers({ keys, requireSameOrigin, log, now: date });

  const sameSite =
    (handler: Handler): Handler =>
    (request, peer) => {
      origins.requireSameSite(request);
      return handler(request, peer);
    };

  const table: Readonly<Record<string, Route>> = {
    "/": open({ GET: (request) => (prefersHtml(request) ? todosPage(request) : about()) }),
    "/docs": open({ GET: docsPage }),
    "/assets/:name": open({ GET: asset }),
    "/livez": open({ GET: health.live }),
    "/readyz": open({ GET: health.ready }),
    "/api/openapi.json": open({ GET: () => json(openapi) }),
    "/api/todos": open({ GET: todos.list, POST: sameSite(todos.create) }),
    "/api/todos/:id": open({
      GET: todos.get,
      PATCH: sameSite(todos.update),
      DELETE: sameSite(todos.delete),
    }),
    "/api/events": open({ GET: events.follow }),
    "/api/whoami": guarded(bearer, { GET: whoami }),
    "/api/whoami/*": guarded(bearer),
    "/admin": guarded(basic, { GET: toAdmin }),
    "/admin/": guarded(basic, { GET: greet }),
    "/admin/keys": guarded(basic, admin && { GET: admin.list, POST: admin.create }),
    "/admin/keys/:id": guarded(basic, admin && { DELETE: admin.revoke }),
    "/admin/keys/:id/rotate": guarded(basic, admin && { POST: admin.rotate }),
    "/admin/*": guarded(basic),
    "/*": nowhere,
  };
  const routes = Object.entries(table).map(
    ([path, route]) => [path, observed.handler(path, door.lead(path, route))] as const,
  );
  const retire = (): void => {
    isRetired = true;
  };
  const drain = (): void => {
    retire();
    door.close();
    events.end();
  };
  return { routes: Object.fromEntries(routes), retire, drain };
}
