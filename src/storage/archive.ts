import type { Position, TodoId } from "../todo.ts";

/** What was asked for cannot be done as it was asked, and nothing was done; in one line, that says what to do. */
export class Refusal extends Error {
  override readonly name = "Refusal";
}

/** Work that takes its time. */
export interface Work {
  /** Breaks it off: what was begun is undone, and the call throws the signal's reason. */
  readonly signal: AbortSignal;
  /** Is told now and then how many to-dos are done, and of how many where that is known. */
  readonly onProgress: (done: number, total: number | undefined) => void;
}

/** What a back-up, or a store made from one, holds. */
export interface Copied {
  readonly todos: number;
  readonly bytes: number;
  readonly position: Position;
}

export interface Moved {
  readonly todos: number;
  /** The greatest id ever given; the next to-do gets the one after it. */
  readonly lastId: TodoId;
}

/** What is done to a whole store. A call that fails leaves things as they were; it throws a Refusal or an Error. */
export interface Archive {
  /** Copies the store into a new file, beside a server that may be writing it. Tells the position it shows. */
  backup(file: string, signal: AbortSignal): Promise<Copied>;
  /** Gives a store that is empty, and that no server uses, all that a back-up holds; tells its new position. */
  restore(file: string, signal: AbortSignal): Promise<Copied>;
  /** Writes all to-dos of one moment, as `ndjson.ts` says, beside a server that may be writing them. */
  export(write: (text: string) => Promise<void>, work: Work): Promise<Moved>;
  /** Gives a store without to-dos, that no server uses, all those of an export. */
  import(source: AsyncIterable<Uint8Array>, maxTodos: number, work: Work): Promise<Moved>;
}
