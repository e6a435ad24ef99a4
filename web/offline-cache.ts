/** The caches in which a browser keeps the page and its last list. The page and its service worker share them. */
const PREFIX = "todo-service.";
/** The page and its assets, in one cache for each version. */
export const PAGE_CACHE_PREFIX = `${PREFIX}page-`;
export const LIST_CACHE = `${PREFIX}list`;

/** Deletes the caches of earlier versions of the page. */
export async function deletePageCaches(current: string): Promise<void> {
  const names = (await caches.keys()).filter(
    (name) => name.startsWith(PAGE_CACHE_PREFIX) && name !== current,
  );
  await Promise.all(names.map((name) => caches.delete(name)));
}
