import type { Parent } from "./client.ts";

/** Returns a text that differs for each parent. */
export const parentText = (parent: Parent): string =>
  parent.kind === "key" ? `key:${parent.id}` : `${parent.kind}:${parent.entryHash}:${parent.name}`;

export const isSameParent = (one?: Parent, other?: Parent): boolean =>
  (one && parentText(one)) === (other && parentText(other));
