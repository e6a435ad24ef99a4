/** Returns the Web Locks API. A page over HTTP from another machine has none, and a browser that blocks cookies rejects its use. */
export async function findLocks(): Promise<LockManager | undefined> {
  try {
    await navigator.locks.query();
    return navigator.locks;
  } catch {
    return undefined;
  }
}
