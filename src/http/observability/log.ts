/** A logger, such as pino's. The service never passes credentials or bodies to it. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A logger that writes nothing. */
export const NOOP_LOG: Log = { info() {}, warn() {}, error() {} };
