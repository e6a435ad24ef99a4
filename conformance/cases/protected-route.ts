/** What the cases of both protected routes do. */
import examples from "../examples.json" with { type: "json" };
import type { CapturedResponse, Target, TargetClient } from "../target-client.ts";
import { GROUP } from "../walk.ts";

/** The headers and the query of a request, with a note for the report, which never shows their values. */
export interface Attempt {
  readonly headers?: Readonly<Record<string, string>>;
  readonly query?: string;
  readonly note: string;
}

type Check = (response: CapturedResponse) => void;

export interface ProtectedRoute {
  readonly path: string;
  readonly valid: (target: Target) => Attempt;
  readonly unknown: Attempt;
  /** Paths that a router or guard may confuse with the route. */
  readonly pathVariants: readonly string[];
  /** Paths below the route, which its guard covers too. */
  readonly below: readonly string[];
}

export const WITHOUT_CREDENTIALS: Attempt = { note: "without credentials" };
/** As several kinds of clients send it. */
export const EACH_WITHOUT: readonly Attempt[] = examples.headers.map((headers) => {
  return { headers, note: ["without credentials", ...Object.keys(headers)].join(", with ") };
});

export function withAuthorization(authorization: string, note: string): Attempt {
  return { headers: { authorization }, note };
}

/** Returns an attempt without an Authorization header, but with this value in others. */
export function withEach(names: readonly string[], value: string): Attempt {
  const headers = Object.fromEntries(names.map((name) => [name, value]));
  return { headers, note: `with credentials in ${names} only` };
}

export async function getWithCredentials(
  client: TargetClient,
  route: ProtectedRoute,
): Promise<CapturedResponse> {
  const response = await client.send("GET", route.path, route.valid(client.target));
  if (response.ok) client.shown.set(route.path, response.text);
  return response;
}

/** Sends attempts, many at once, and checks each response, except those of a server that limits the rate of wrong credentials. */
export async function expectEach(
  client: TargetClient,
  { path }: ProtectedRoute,
  attempts: readonly Attempt[],
  check: Check,
): Promise<void> {
  const send = (attempt: Attempt) => client.send("GET", path + (attempt.query ?? ""), attempt);
  for (let start = 0; start < attempts.length; start += GROUP) {
    const responses = await Promise.all(attempts.slice(start, start + GROUP).map(send));
    responses.filter(({ status }) => status !== 429).forEach(check);
  }
}

/** Sends requests without an Authorization header, with others that some servers trust, and with the cookies of an accepted request. */
export async function expectWithout(
  client: TargetClient,
  route: ProtectedRoute,
  check: Check,
): Promise<void> {
  const name = /^[!-~]+$/.exec(client.target.user.name)?.[0] ?? "admin";
  const cookies = (await getWithCredentials(client, route)).headers.getSetCookie();
  const attempts = [
    ...EACH_WITHOUT,
    withEach(["cookie"], cookies.map((text) => text.split(";")[0]).join("; ")),
    withEach(examples.credentials.addressHeaders, "127.0.0.1"),
    withEach(examples.credentials.identityHeaders, name),
  ];
  await expectEach(client, route, attempts, check);
}

export async function expectText(client: TargetClient, route: ProtectedRoute): Promise<void> {
  const response = await getWithCredentials(client, route);
  const { json } = response;
  response.expect(/^(text\/.*)?$/i.test(response.contentType), "a text content type");
  response.expect(json === null || typeof json !== "object", "text, not JSON");
}

/** Expects concurrent requests with and without valid credentials to get separate responses. */
export async function expectSeparate(
  client: TargetClient,
  route: ProtectedRoute,
  invalid: Attempt,
): Promise<void> {
  const shown = client.shown.get(route.path);
  const attempts = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? route.valid(client.target) : invalid));
  const responses = await Promise.all(attempts.map((attempt) => client.send("GET", route.path, attempt)));
  responses.forEach((response, n) => {
    if (n % 2 === 1) response.expect(!response.ok, "a rejection of each concurrent invalid request");
    else if (response.status !== 429)
      response.expect(response.text === shown, "the same text in each concurrent valid request");
  });
}

/** Expects that no response without valid credentials contains what the route shows. */
export async function expectNothingShown(client: TargetClient, route: ProtectedRoute): Promise<void> {
  const shown = client.shown.get(route.path)?.trim() || undefined;
  const expectNone = (response: CapturedResponse) =>
    response.expect(
      ![response.text.trim(), ...response.text.split(/\r?\n/)].some((text) => text === shown),
      "nothing of the protected route",
    );
  await expectEach(client, route, [WITHOUT_CREDENTIALS, route.unknown], expectNone);
  const bare = route.path.replace(/\/$/, "");
  const paths = [...route.pathVariants, ...examples.credentials.paths.map((end) => bare + end)];
  (await Promise.all(paths.map((path) => client.sendRaw("GET", path)))).forEach(expectNone);
  const headers = { "x-original-url": route.path, "x-rewrite-url": route.path };
  expectNone(await client.send("GET", "/", { headers, note: `with ${route.path} in a header` }));
}

/** Expects the guard to cover other methods and the paths below the route. */
export async function expectGuarded(client: TargetClient, route: ProtectedRoute): Promise<void> {
  const methods = ["HEAD", "POST", "PUT", "PATCH", "DELETE"].map((method) => [method, route.path] as const);
  const requests = [...methods, ...route.below.map((path) => ["GET", path] as const)];
  const responses = await Promise.all(
    [WITHOUT_CREDENTIALS, route.unknown].flatMap((attempt) =>
      requests.map(([method, path]) => client.send(method, path, attempt)),
    ),
  );
  for (const response of responses) response.expect(!response.ok, "no 2xx status");
}
