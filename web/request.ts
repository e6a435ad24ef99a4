/** Problem document of a failed request (RFC 9457). */
export interface Problem {
  readonly title: string;
  readonly code?: string;
  readonly detail?: string;
  readonly errors?: FieldErrors;
}

export type FieldErrors = readonly { readonly field: string; readonly message: string }[];

export class ProblemError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail ?? problem.title);
    this.problem = problem;
  }
}

/**
 * Sends a request; the browser adds the credentials that it knows. Throws `ProblemError` for an error status or without a response.
 * The URL is absolute, because fetch rejects relative URLs on a page whose own URL contains credentials.
 */
export async function sendRequest(method: string, path: string, body?: object): Promise<Response> {
  const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) };
  const response = await fetch(location.origin + path, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new ProblemError({ title: "The service cannot be reached." });
  });
  if (response.ok) return response;
  const problem: unknown = await response.json().catch(() => undefined);
  throw new ProblemError(
    isProblem(problem) ? problem : { title: `The service responded with status ${response.status}.` },
  );
}

const isProblem = (value: unknown): value is Problem =>
  typeof value === "object" && value !== null && "title" in value && typeof value.title === "string";

export const FOREIGN_RESPONSE: Problem = { title: "The response is not from the service." };

/** Parses a JSON response. Throws `ProblemError` if it is not JSON, such as the error page of a proxy. */
export async function readJson<T>(response: Response): Promise<T> {
  return response.json().catch(() => {
    throw new ProblemError(FOREIGN_RESPONSE);
  });
}

export function errorMessage(error: unknown): string {
  if (!(error instanceof ProblemError)) throw error;
  return error.message;
}
