/** An API key, or a user or a client that has none, with the hash of its stored entry, which is empty if nothing is stored. */
export type Parent =
  | { readonly kind: "key"; readonly id: string }
  | { readonly kind: "user" | "client"; readonly name: string; readonly entryHash: string };

/** Returns a text that differs for each parent. */
export const parentText = (parent: Parent): string =>
  parent.kind === "key" ? `key:${parent.id}` : `${parent.kind}:${parent.entryHash}:${parent.name}`;

export const isSameParent = (one?: Parent, other?: Parent): boolean =>
  (one && parentText(one)) === (other && parentText(other));
