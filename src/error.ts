/** A validation error of one field of a request body. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** What an error code means. */
interface ErrorDefinition {
  /** The HTTP status. */
  readonly status: number;
  /** The same for every error with this code (RFC 9457 §3.1.3). */
  readonly title: string;
  /** The causes and the remedy, in Markdown. `npm run docs` writes it to the reference and to openapi.json. */
  readonly description: string;
}

// Without this function, the declarations of the package would contain every text.
const define = <Code extends string>(
  errors: Readonly<Record<Code, ErrorDefinition>>,
): Readonly<Record<Code, ErrorDefinition>> => errors;

/** Every error that the service sends. */
export const ERRORS = define({
  invalid_id: {
    status: 400,
    title: "Invalid id",
    description:
      "The id is not decimal digits, or it is greater than 18446744073709551615. Send the id exactly as the service sent it.",
  },
  invalid_query: {
    status: 400,
    title: "Invalid query parameter",
    description:
      "`limit`, `after`, `done` or `since` has an invalid value, or appears twice. `detail` names the parameter and what it accepts.",
  },
  invalid_json: {
    status: 400,
    title: "Invalid JSON",
    description:
      "The body is empty or incomplete, is not UTF-8, has a byte order mark, or is not JSON. Send one JSON value in UTF-8.",
  },
  invalid_idempotency_key: {
    status: 400,
    title: "Invalid Idempotency-Key",
    description:
      "The header is not one string of 1 to 255 visible ASCII characters, with or without quotes. Send a random UUID.",
  },
  unauthorized: {
    status: 401,
    title: "Missing or invalid credentials",
    description:
      "The request has no valid credentials. Send what `WWW-Authenticate` names: a bearer token, or a user and a password. The log says why the service rejected them.",
  },
  https_required: {
    status: 403,
    title: "HTTPS required",
    description:
      "The request came over plain HTTP from another machine, or through a proxy that is not trusted or does not say `https`. `/admin` requires HTTPS, with or without a password. In private mode, other paths that require credentials do so, too; `/api/whoami` does so only if a token was sent. Use HTTPS. Behind a proxy, set `TODO_TRUSTED_PROXY`. Change a password that was sent unencrypted.",
  },
  insufficient_scope: {
    status: 403,
    title: "Insufficient scope",
    description:
      "In private mode, a token with the scope `read` was used for a write. Use an API key with the scope `write`. Or a browser tried to sign in another one, but only a module knows its user or token.",
  },
  cross_site_write: {
    status: 403,
    title: "Cross-site write rejected",
    description:
      "A browser sent a write for a page of another site. Below `/admin`, at `/mcp`, and in private mode with a password, pages of any other origin are rejected, too. List the origin of the page in `TODO_CORS_ORIGINS`.",
  },
  route_not_found: {
    status: 404,
    title: "Path not found",
    description: "The path does not exist. Check for a slash at its end: `/api/todos/` is not `/api/todos`.",
  },
  todo_not_found: {
    status: 404,
    title: "To-do not found",
    description:
      "No to-do has this id: it was deleted, or it never existed. The service does not reuse ids. Get the list again.",
  },
  key_not_found: {
    status: 404,
    title: "API key not found",
    description:
      "No API key has this id: it was revoked, or it never existed. Get the list of API keys again.",
  },
  method_not_allowed: {
    status: 405,
    title: "Method not allowed",
    description: "The path does not have this method. Use a method that `Allow` lists.",
  },
  request_timeout: {
    status: 408,
    title: "Request timeout",
    description:
      "The body did not arrive within 10 seconds. Nothing was stored. Send the complete request again.",
  },
  key_exists: {
    status: 409,
    title: "API key name already in use",
    description:
      "An API key, or another browser of the same owner, has this name. Choose a different name. To replace an API key, rotate or revoke it.",
  },
  body_too_large: {
    status: 413,
    title: "Request body too large",
    description: "The body has more than 64 KiB. Send a smaller body.",
  },
  unsupported_media_type: {
    status: 415,
    title: "Unsupported media type",
    description:
      "`Content-Type` is missing or is not JSON in UTF-8, or the body has a `Content-Encoding`. Send `Content-Type: application/json`, without compression.",
  },
  misdirected_host: {
    status: 421,
    title: "Host not allowed",
    description:
      "The `Host` of the request is not a name of this server. If it should be, list it in `TODO_ALLOWED_HOSTS`, with the port unless it is the default.",
  },
  validation_failed: {
    status: 422,
    title: "Validation failed",
    description: "The body is JSON, but violates rules. Correct every field that `errors` names.",
  },
  idempotency_key_reused: {
    status: 422,
    title: "Idempotency-Key reused with a different body",
    description: "Within 24 hours, the key was used for another title. Use a new key for each new to-do.",
  },
  too_many_failures: {
    status: 429,
    title: "Too many wrong passwords",
    description:
      "From this address, too many passwords in a row were wrong for this user. The service also rejects the right password, for up to 15 minutes. Wait for `Retry-After` seconds, or log in from another address.",
  },
  internal_error: {
    status: 500,
    title: "Internal server error",
    description:
      "The service has a fault, and the same request will probably fail again. Report it with the line `request failed` from the log.",
  },
  store_unavailable: {
    status: 503,
    title: "Store unavailable",
    description:
      "The disk or the database failed, or did not answer in time. Try again after `Retry-After` seconds. A write may have been stored: repeat a `POST` with the same `Idempotency-Key`.",
  },
  credentials_unavailable: {
    status: 503,
    title: "Credential check unavailable",
    description:
      "The check of the credential failed, so the credential may be right. Try again after `Retry-After` seconds.",
  },
  overloaded: {
    status: 503,
    title: "Server overloaded",
    description:
      "A limit of concurrent requests, of unfinished bodies or of event streams is reached, in total or for your network. Nothing was stored. Try again after `Retry-After` seconds, and not more often. To reconnect, create a new `EventSource`.",
  },
  stopping: {
    status: 503,
    title: "Server shutting down",
    description:
      "`/readyz` reports that the server is shutting down. Send requests to another replica, or try again after `Retry-After` seconds.",
  },
  store_full: {
    status: 507,
    title: "Store full",
    description:
      "The store has the maximum number of to-dos, or has assigned its greatest id. Delete to-dos, or raise `TODO_MAX_TODOS`.",
  },
});

/** Every `code` of the service's `application/problem+json` responses (RFC 9457). A newer service may add codes. */
export type ErrorCode = keyof typeof ERRORS;

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
