import { errorMessage } from "../../../error-message.ts";
import type { BackupSummary } from "../../maintenance.ts";
import { backup } from "./backup.ts";

/** Asks the thread for a backup of the store at `path`. */
export interface BackupRequest {
  readonly path: string;
  readonly file: string;
}

export type BackupReply =
  | { readonly type: "done"; readonly summary: BackupSummary }
  | { readonly type: "failed"; readonly reason: string };

declare const self: Worker;

self.onmessage = async ({ data }: MessageEvent<BackupRequest>) => self.postMessage(await answer(data));

async function answer({ path, file }: BackupRequest): Promise<BackupReply> {
  try {
    return { type: "done", summary: await backup(path, file, new AbortController().signal) };
  } catch (error) {
    return { type: "failed", reason: errorMessage(error) };
  }
}
