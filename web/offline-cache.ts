/** The caches in which a browser keeps the page and its last list. The page and its service worker share them. */
const PREFIX = "todo-service.";
/** The page and its assets, in one cache for each version. */
export const PAGE_CACHE_PREFIX = `${PREFIX}page-`;
export const LIST_CACHE = `${PREFIX}list`;

/** Deletes the caches of this service whose names start with `prefix`, except one. Returns whether there were any. */
export async function deleteCaches(prefix = PREFIX, except?: string): Promise<boolean> {
  const names = (await caches.keys()).filter((name) => name.startsWith(prefix) && name !== except);
  await Promise.all(names.map((name) => caches.delete(name)));
  return names.length > 0;
}
