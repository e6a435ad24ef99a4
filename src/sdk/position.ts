/**
 * Returns how many changes a list at `position` is ahead of `other`, negative if it is behind. NaN if the two belong to different
 * epochs: only the numbers of one epoch are in the order of the changes. A position is `<epoch>-<number>`.
 */
export function lead(position: string, other = ""): number {
  const [, epoch, number] = parse(position);
  const [, otherEpoch, otherNumber] = parse(other);
  return epoch === otherEpoch ? Number(number) - Number(otherNumber) : Number.NaN;
}

const parse = (position: string): readonly string[] => /^(.+)-(\d+)$/.exec(position) ?? [];
