import { ServiceError } from "../error.ts";

/**
 * Returns the value of a parameter in a query. Throws `invalid_query` for a bad or repeated value.
 * @param parse returns `undefined` for a bad value
 */
export function readParameter<T>(
  query: URLSearchParams,
  name: string,
  parse: (value: string) => T | undefined,
  expected: string,
): T | undefined {
  const values = query.getAll(name);
  if (values.length === 0) return undefined;
  const value = values.length === 1 ? parse(values[0] ?? "") : undefined;
  if (value !== undefined) return value;
  throw new ServiceError("invalid_query", { detail: `Send ${name} once, as ${expected}.` });
}
