/**
 * The service worker of the list: it keeps the page and opens it when the service cannot be reached. It handles the page and
 * its assets only. The page itself reads and writes the last list (offline.ts).
 */
declare const self: ServiceWorkerGlobalScope;
/** The build inserts the paths of the assets that the page needs. */
declare const BUILT_ASSETS: readonly string[];
/** The build inserts a hash of the page, so that this script changes with the page. */
declare const BUILT_VERSION: string;

const ASSETS = BUILT_ASSETS;
const CACHE_PREFIX = "todo-service.page-";
/** The page and its assets, in one cache for each version. */
const PAGE_CACHE = CACHE_PREFIX + BUILT_VERSION;
/** After this time without an answer, the stored page opens. Its own requests then show whether the service can be reached. */
const PATIENCE_MS = 500;
/**
 * On this machine, there is no network that fails: each answer is of this service, or of another program that has its port now.
 * Then only a failed connection opens the stored page.
 */
const IS_LOOPBACK = /^(?:(?:.*\.)?localhost|127(?:\.\d+){3}|\[::1\])$/.test(self.location.hostname);

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(deleteEarlierPages()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== self.location.origin) return;
  if (request.mode === "navigate" && pathname === "/") event.respondWith(openPage(request));
  else if (ASSETS.includes(pathname)) event.respondWith(openAsset(request));
});

async function install(): Promise<void> {
  const page = await fetch("/", { headers: { Accept: "text/html" }, cache: "no-cache" });
  const html = await page.clone().text();
  // While several servers are updated, the page may come from another version than this script.
  if (!page.ok || page.redirected || !ASSETS.every((path) => html.includes(path)))
    throw new Error("the page has another version than its service worker; the next visit tries again");
  const cache = await caches.open(PAGE_CACHE);
  await cache.addAll(ASSETS);
  await cache.put("/", page);
  // Open pages have loaded all their assets, so they do not depend on the previous version.
  await self.skipWaiting();
}

async function deleteEarlierPages(): Promise<void> {
  const names = await caches.keys();
  const earlier = names.filter((name) => name.startsWith(CACHE_PREFIX) && name !== PAGE_CACHE);
  await Promise.all(earlier.map((name) => caches.delete(name)));
}

/** Opens the page from the service, or the stored page if the service does not answer or fails. */
async function openPage(request: Request): Promise<Response> {
  const answer = fetch(request).catch(() => undefined);
  const timeout = new Promise<undefined>((resolve) => setTimeout(resolve, PATIENCE_MS));
  const response = await (IS_LOOPBACK ? answer : Promise.race([answer, timeout]));
  if (response !== undefined && (IS_LOOPBACK || response.status < 500)) return response;
  const stored = await caches.match("/", { cacheName: PAGE_CACHE, ignoreVary: true });
  return stored ?? (await answer) ?? Response.error();
}

async function openAsset(request: Request): Promise<Response> {
  const stored = await caches.match(request, { cacheName: PAGE_CACHE, ignoreVary: true });
  return stored ?? fetch(request);
}
