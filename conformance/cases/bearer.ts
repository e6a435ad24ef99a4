/** GET /api/whoami requires a known bearer token (sections 4, 5 and 7). */
import { createHash } from "node:crypto";
import examples from "../examples.json" with { type: "json" };
import { similarSecrets } from "../similar-secrets.ts";
import type { CapturedResponse, Target, TargetClient } from "../target-client.ts";
import { basic } from "../walk.ts";
import {
  type Attempt,
  EACH_WITHOUT,
  expectEach,
  expectGuarded,
  expectNothingShown,
  expectSeparate,
  expectText,
  expectWithout,
  getWithCredentials,
  type ProtectedRoute,
  withAuthorization,
  withEach,
} from "./protected-route.ts";

const whoami: ProtectedRoute = {
  path: "/api/whoami",
  valid: ({ token }) => withAuthorization(`Bearer ${token}`, "with the known token"),
  unknown: withAuthorization("Bearer conformance-unknown-token", "with an unknown token"),
  pathVariants: examples.credentials.whoamiPaths,
  below: ["/api/whoami/", "/api/whoami/no-such", "/api/whoami/no/such"],
};

const { credentials } = examples;

// More than small caches hold, so that one that has the known token, too, loses it.
const many = Array.from({ length: 300 }, (_, n) => `conformance-unknown-${n}`);
const unknownTokens = [...credentials.unknownTokens, "x".repeat(500), ...many].map((token) =>
  withAuthorization(`Bearer ${token}`, `with an unknown token of length ${token.length}`),
);

/** In the order of `reliesOn`: a case comes after those that it relies on. */
export const cases = {
  // The known token comes first, because a server may limit the requests of a client that failed before.
  async "whoami.200"(client: TargetClient) {
    for (let n = 0; n < 2; n += 1) (await getWithCredentials(client, whoami)).expectStatus(200);
  },

  "whoami.text": (client: TargetClient) => expectText(client, whoami),

  async "whoami.name"(client: TargetClient) {
    const response = await getWithCredentials(client, whoami);
    const { clientName } = client.target;
    if (clientName !== undefined)
      return response.expect(response.text === clientName, `exactly “${clientName}”`);
    response.expect(response.text.trim() !== "" && typeof response.json !== "string", "a name as plain text");
  },

  "bearer.missing.401": (client: TargetClient) => expectWithout(client, whoami, expect401),

  "bearer.missing.challenge": (client: TargetClient) =>
    expectEach(client, whoami, EACH_WITHOUT, expectChallenge),

  "bearer.unknown.401": (client: TargetClient) => expectEach(client, whoami, unknownTokens, expect401),

  "bearer.unknown.challenge": (client: TargetClient) =>
    expectEach(client, whoami, unknownTokens, expectChallenge),

  "client.request": (client: TargetClient) =>
    expectSeparate(client, whoami, withAuthorization("Bearer x", "with an unknown token")),

  "bearer.empty.401": (client: TargetClient) =>
    expectUnauthorized(client, [withAuthorization("Bearer", "with the scheme Bearer and no token")]),

  "bearer.near-miss.401": (client: TargetClient) => expectUnauthorized(client, similarTokens(client.target)),

  async "bearer.scheme.401"(client: TargetClient) {
    await expectUnauthorized(client, misplacedTokens(client));
    const below = await client.send("GET", `${whoami.path}/${encodeURIComponent(client.target.token)}`);
    below.expect(!below.ok, "no 2xx status");
  },

  "bearer.refused.no-name": (client: TargetClient) => expectNothingShown(client, whoami),

  "bearer.router": (client: TargetClient) => expectGuarded(client, whoami),
};

/** Tokens that a careless comparison or lookup takes for the known one. */
function similarTokens({ token, clientName = "" }: Target): Attempt[] {
  const all: [note: string, token: string][] = [
    ...similarSecrets(token),
    ...credentials.similarTokens.map((text): [string, string] => [
      text,
      text.replaceAll("TOKEN", () => token),
    ]),
    ["without its first character", token.slice(1)],
    ["with another second character", `${token.slice(0, 1)}~${token.slice(2)}`],
    ["without its punctuation", token.replace(/[^a-z0-9]/gi, "")],
    ["reversed", [...token].reverse().join("")],
    ["with é as its last character", `${token.slice(0, -1)}é`],
    ["percent-encoded", `%${token.charCodeAt(0).toString(16)}${token.slice(1)}`],
    ["with a space after its first character", `${token.slice(0, 1)} ${token.slice(1)}`],
    ...(["hex", "base64", "base64url"] as const).flatMap((encoding): [string, string][] => [
      [`in ${encoding}`, Buffer.from(token).toString(encoding)],
      [`hashed, in ${encoding}`, createHash("sha256").update(token).digest(encoding)],
    ]),
    ["replaced by the client's name", /^[ -~]*$/.exec(clientName)?.[0] ?? ""],
  ];
  return all
    .filter(([, similar]) => similar !== token && similar !== "")
    .map(([note, similar]) =>
      withAuthorization(`Bearer ${similar}`, `with a token similar to TOKEN: ${note}`),
    );
}

/** The known token with other schemes and in other headers. Only the Authorization header authenticates. */
function misplacedTokens({ target: { token, user } }: TargetClient): Attempt[] {
  const pairs = [`client:${token}`, `${token}:`, `${token}:${token}`];
  const cookie = credentials.secretNames.map((name) => `${name}=${token}`).join("; ");
  const query = `?${credentials.secretNames.map((name) => `${name}=${encodeURIComponent(token)}`).join("&")}`;
  return [
    ...credentials.schemes.map((scheme) =>
      withAuthorization(scheme + token, `with the token and the scheme “${scheme.trim()}”`),
    ),
    ...pairs.map((pair) => withAuthorization(`Basic ${btoa(pair)}`, "with the token in Basic credentials")),
    withAuthorization(basic(user.name, user.password), "with Basic credentials"),
    ...[`Bearer ${token}`, token].map((value) => withEach(credentials.secretHeaders, value)),
    { headers: { cookie }, note: "with the token in cookies" },
    { query, note: "with the token in the query" },
  ];
}

async function expectUnauthorized(client: TargetClient, attempts: readonly Attempt[]): Promise<void> {
  await expectEach(client, whoami, attempts, (response) => {
    expect401(response);
    expectChallenge(response);
  });
}

const expect401 = (response: CapturedResponse): void => response.expectStatus(401);

const expectChallenge = (response: CapturedResponse): void =>
  response.expect((response.headers.get("www-authenticate") ?? "") !== "", "a WWW-Authenticate header");
