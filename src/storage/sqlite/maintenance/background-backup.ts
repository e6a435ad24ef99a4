import type { BackupSummary } from "../../maintenance.ts";
import type { BackupReply, BackupRequest } from "./backup.worker.ts";

/** Does `backup` in a thread, so that the server responds meanwhile. Rejects with the reason of a failure. */
export async function backupInBackground(path: string, file: string): Promise<BackupSummary> {
  const worker = new Worker(new URL("./backup.worker.ts", import.meta.url).href);
  try {
    const reply = await new Promise<BackupReply>((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<BackupReply>) => resolve(data);
      worker.onerror = ({ message }) => reject(new Error(message));
      worker.addEventListener("close", () => reject(new Error("the backup's thread ended early")));
      worker.postMessage({ path, file } satisfies BackupRequest);
    });
    if (reply.type === "failed") throw new Error(reply.reason);
    return reply.summary;
  } finally {
    worker.terminate();
  }
}
