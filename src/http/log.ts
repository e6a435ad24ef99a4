/** Where the service writes what happens; pino's logger is one. Never credentials, never bodies. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export const SILENT: Log = { info() {}, warn() {}, error() {} };
