/** One field of a request body that breaks a rule. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** Every way a request can fail. `http/reply.ts` holds the one table from these codes to HTTP. */
export type FailureCode =
  | "invalid_id"
  | "invalid_query"
  | "invalid_json"
  | "invalid_idempotency_key"
  | "unauthorized"
  | "https_required"
  | "cross_site_write"
  | "route_not_found"
  | "todo_not_found"
  | "key_not_found"
  | "method_not_allowed"
  | "key_exists"
  | "idempotency_key_in_flight"
  | "body_too_large"
  | "unsupported_media_type"
  | "misdirected_host"
  | "validation_failed"
  | "idempotency_key_reused"
  | "too_many_failures"
  | "internal_error"
  | "store_unavailable"
  | "credentials_unavailable"
  | "overloaded"
  | "stopping"
  | "store_full";

interface FailureOptions {
  /** A sentence for the person who sent the request: what is wrong, and what to do. */
  readonly detail?: string;
  /** For `validation_failed`: all broken rules together. */
  readonly errors?: readonly FieldError[];
  /** Extra response headers that the standard asks for, such as Allow or WWW-Authenticate. */
  readonly headers?: Readonly<Record<string, string>>;
  /** What led to it; for the log, never for the caller. */
  readonly cause?: unknown;
}

/** A failure from the closed set; thrown where it is found, answered in one place (`http/service.ts`). */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly code: FailureCode;
  readonly detail: string | undefined;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: FailureCode, { detail, errors, headers = {}, cause }: FailureOptions = {}) {
    super(detail ?? code, { cause });
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.headers = headers;
  }
}
