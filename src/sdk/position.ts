/** A position: an epoch, and the number of a change. Numbers of one epoch are in the order of the changes. */
export interface Position {
  readonly epoch: string;
  readonly sequence: number;
}

/** Parses `<epoch>-<sequence>`. Another text is an epoch without changes. */
export function parsePosition(text = ""): Position {
  const [, epoch = text, sequence = 0] = /^(.+)-(\d+)$/.exec(text) ?? [];
  return { epoch, sequence: Number(sequence) };
}

/** Returns whether a list at `position` contains every change up to `other`. Positions of different epochs do not tell. */
export function includes(position: string, other: string): boolean {
  const [list, change] = [parsePosition(position), parsePosition(other)];
  return list.epoch === change.epoch && list.sequence >= change.sequence;
}
