/**
 * Returns how many changes a list at `position` is ahead of `other`, negative if it is behind. NaN if the two belong to different
 * epochs: only the numbers of one epoch are in the order of the changes. A position is `<epoch>-<number>`.
 */
export function lead(position: string, other = ""): number {
  const epoch = position.slice(0, position.lastIndexOf("-") + 1);
  const toNumber = (text: string): number => Number(text.slice(epoch.length));
  return epoch !== "" && other.startsWith(epoch) ? toNumber(position) - toNumber(other) : Number.NaN;
}
