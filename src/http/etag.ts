/** Matches one entity tag of a list; the group is its opaque tag. */
const ENTITY_TAG = /(?:^|,)[ \t]*(?:W\/)?("[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?=,|$)/g;

/** Returns whether `If-None-Match` is `*` or lists the entity tag, by weak comparison (RFC 9110 §13.1.2, §8.8.3.2). */
export function matchesEtag(ifNoneMatch: string, etag: string): boolean {
  if (ifNoneMatch === "*") return true;
  // Weak comparison ignores the W/ before a tag.
  const opaqueTag = etag.replace(/^W\//, "");
  return ifNoneMatch.matchAll(ENTITY_TAG).some(([, listed]) => listed === opaqueTag);
}
