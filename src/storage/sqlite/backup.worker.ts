import { serveRequests } from "../../worker-thread.ts";
import { type BackupRequest, backup } from "./maintenance.ts";

serveRequests(([path, file]: BackupRequest) => backup(path, file, { signal: new AbortController().signal }));
