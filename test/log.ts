import type { Log } from "../src/http/observability/log.ts";

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

export function capturingLog() {
  const lines: LogLine[] = [];
  const keep = (level: LogLine["level"]) => (fields: object, message: string) => {
    lines.push({ level, fields: { ...fields }, message });
  };
  const log: Log = { info: keep("info"), warn: keep("warn"), error: keep("error") };
  return { log, lines, text: () => JSON.stringify(lines) };
}
