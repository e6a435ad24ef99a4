import type { ErrorCode } from "./error-code.ts";

/** A validation error of one field of a request body. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** The codes of all request errors. One table in `http/response.ts` maps them to HTTP status codes. */
export type { ErrorCode };

interface ServiceErrorOptions {
  /** Tells the client what is wrong and what to do. */
  readonly detail?: string;
  /** All validation errors, for `validation_failed`. */
  readonly errors?: readonly FieldError[];
  /** Extra response headers that RFC 9110 requires, such as Allow or WWW-Authenticate. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The underlying error. It is logged, never sent to the client. */
  readonly cause?: unknown;
}

/** An error with a code from the closed set. The middleware turns it into a response. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly code: ErrorCode;
  readonly detail: string | undefined;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, { detail, errors, headers = {}, cause }: ServiceErrorOptions = {}) {
    super(detail ?? code, { cause });
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.headers = headers;
  }
}
