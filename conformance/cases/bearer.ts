/** GET /api/whoami requires a known bearer token (sections 4, 5 and 7). */
import { createHash } from "node:crypto";
import type { Cases } from "../case.ts";
import { similarSecrets } from "../similar-secrets.ts";
import type { CapturedResponse, TargetClient } from "../target-client.ts";
import { basic } from "../walk.ts";
import {
  type Attempt,
  expectEach,
  expectGuarded,
  expectNothingShown,
  expectSeparate,
  expectText,
  getWithCredentials,
  type ProtectedRoute,
  WITHOUT_CREDENTIALS,
  withAuthorization,
} from "./protected-route.ts";

const whoami: ProtectedRoute = {
  path: "/api/whoami",
  valid: ({ token }) => withAuthorization(`Bearer ${token}`, "with the known token"),
  unknown: withAuthorization("Bearer conformance-unknown-token", "with an unknown token"),
  pathVariants: [
    "/api/%77hoami",
    "//api/whoami",
    "/api//whoami",
    "/x/../api/whoami",
    "/api/./whoami",
    "/api/WHOAMI",
  ],
  below: ["/api/whoami/", "/api/whoami/no-such", "/api/whoami/no/such"],
};

const unknownTokens = [
  ..."conformance-unknown-token x 0 1 null undefined true __proto__ constructor toString * % %00 .* admin demo test '".split(
    " ",
  ),
  "x".repeat(500),
].map((token) => withAuthorization(`Bearer ${token}`, `with an unknown token of length ${token.length}`));

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

  "bearer.missing.401": (client: TargetClient) =>
    expectEach(client, whoami, [WITHOUT_CREDENTIALS], expect401),

  "bearer.missing.challenge": (client: TargetClient) =>
    expectEach(client, whoami, [WITHOUT_CREDENTIALS], expectChallenge),

  "bearer.unknown.401": (client: TargetClient) => expectEach(client, whoami, unknownTokens, expect401),

  "bearer.unknown.challenge": (client: TargetClient) =>
    expectEach(client, whoami, unknownTokens, expectChallenge),

  "client.request": (client: TargetClient) =>
    expectSeparate(client, whoami, withAuthorization("Bearer x", "with an unknown token")),

  "bearer.empty.401": (client: TargetClient) =>
    expectUnauthorized(client, [withAuthorization("Bearer", "with the scheme Bearer and no token")]),

  "bearer.near-miss.401": (client: TargetClient) =>
    expectUnauthorized(client, similarTokens(client.target.token)),

  async "bearer.scheme.401"(client: TargetClient) {
    await expectUnauthorized(client, misplacedTokens(client));
    const secret = encodeURIComponent(client.target.token);
    const query = ["token", "access_token", "api_key"].map((name) => `${name}=${secret}`).join("&");
    const response = await client.send("GET", `${whoami.path}?${query}`, { note: "the token" });
    expect401(response);
    expectChallenge(response);
  },

  "bearer.refused.no-name": (client: TargetClient) => expectNothingShown(client, whoami),

  "bearer.router": (client: TargetClient) => expectGuarded(client, whoami),
} as const satisfies Cases;

/** Tokens that a careless comparison or lookup takes for the known one. */
function similarTokens(token: string): Attempt[] {
  const hash = (encoding: "hex" | "base64") => createHash("sha256").update(token).digest(encoding);
  const middle = Math.floor(token.length / 2);
  const all: [note: string, token: string][] = [
    ...similarSecrets(token),
    ["without its first character", token.slice(1)],
    ["with a character in its middle changed", `${token.slice(0, middle)}~${token.slice(middle + 1)}`],
    ["and one more character", `${token}a`],
    ["and one more word", `${token} a`],
    ["after another word", `a ${token}`],
    ["repeated", token + token],
    ["in quotes", `"${token}"`],
    ["in a list", `a, ${token}`],
    ["with a comma", `${token},`],
    ["in lower case", token.toLowerCase()],
    ["in upper case", token.toUpperCase()],
    ["with a padding", `${token}=`],
    ["in Base64", btoa(token)],
    ["percent-encoded", `%${token.charCodeAt(0).toString(16)}${token.slice(1)}`],
    ["hashed", hash("hex")],
    ["hashed, in Base64", hash("base64")],
    ["hashed, in upper case", hash("hex").toUpperCase()],
  ];
  return all
    .filter(([, similar]) => similar !== token && similar !== "")
    .map(([note, similar]) => withAuthorization(`Bearer ${similar}`, `with the token ${note}`));
}

/** The known token with other schemes and in other headers. Only the Authorization header authenticates. */
function misplacedTokens({ target: { token, user } }: TargetClient): Attempt[] {
  const pairs = [`client:${token}`, `${token}:`, `${token}:${token}`];
  const headers = ["x-api-key", "x-auth-token", "x-authorization", "proxy-authorization", "token"];
  const cookie = ["token", "access_token", "authorization"].map((name) => `${name}=${token}`).join("; ");
  return [
    ...["Basic ", "Digest ", "Token ", "BearerX ", "Bearer", "ApiKey ", ""].map((scheme) =>
      withAuthorization(scheme + token, `with the token and the scheme “${scheme.trim()}”`),
    ),
    ...pairs.map((pair) => withAuthorization(`Basic ${btoa(pair)}`, "with the token in Basic credentials")),
    ...(user.name === ""
      ? []
      : [withAuthorization(basic(user.name, user.password), "with valid Basic credentials")]),
    ...headers.flatMap((name) =>
      [`Bearer ${token}`, token].map((value) => ({
        headers: { [name]: value },
        note: `with the token in the header ${name}`,
      })),
    ),
    { headers: { cookie }, note: "with the token in cookies" },
  ];
}

async function expectUnauthorized(client: TargetClient, attempts: readonly Attempt[]): Promise<void> {
  await expectEach(client, whoami, attempts, (response) => {
    expect401(response);
    expectChallenge(response);
  });
}

function expect401(response: CapturedResponse): void {
  response.expectStatus(401);
}

function expectChallenge(response: CapturedResponse): void {
  response.expect((response.headers.get("www-authenticate") ?? "") !== "", "a WWW-Authenticate header");
}
