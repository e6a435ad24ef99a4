/** Replaces the service worker where the list is private, so that no copy of the list remains in the browser. */
import { deleteCaches } from "./offline-cache.ts";

declare const self: ServiceWorkerGlobalScope;

self.addEventListener("install", (event) => event.waitUntil(self.skipWaiting()));
self.addEventListener("activate", (event) => event.waitUntil(remove()));

async function remove(): Promise<void> {
  await deleteCaches();
  await self.registration.unregister();
}
