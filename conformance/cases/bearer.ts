/** GET /api/whoami requires a known bearer token (sections 4, 5 and 7). */
import { createHash } from "node:crypto";
import type { Cases } from "../case.ts";
import { similarSecrets } from "../similar-secrets.ts";
import type { CapturedResponse, TargetClient } from "../target-client.ts";
import { basic } from "../walk.ts";

const path = "/api/whoami";
const unknownTokens = [
  ..."conformance-unknown-token x 0 1 null undefined true __proto__ constructor toString * % %00 .* admin demo test".split(
    " ",
  ),
  ...["'", "x".repeat(500)],
];

export const cases = {
  // The known token comes first, because a server may limit the requests of a client that failed before.
  async "whoami.200"(client: TargetClient) {
    for (let n = 0; n < 2; n += 1) (await getWithKnownToken(client)).expectStatus(200);
  },

  async "whoami.name"(client: TargetClient) {
    const response = await getWithKnownToken(client);
    const { clientName } = client.target;
    if (clientName !== undefined)
      return response.expect(response.text === clientName, `exactly “${clientName}”`);
    const { json } = response;
    const isJson = typeof json === "string" || (typeof json === "object" && json !== null);
    response.expect(response.ok && response.text.trim() !== "" && !isJson, "a name as plain text");
  },

  async "whoami.text"(client: TargetClient) {
    const response = await getWithKnownToken(client);
    response.expect(/^(text\/.*)?$/i.test(response.contentType), "a text content type");
  },

  async "client.request"(client: TargetClient) {
    const name = await readName(client);
    const pairs = Array.from({ length: 10 }, () => [
      getWithKnownToken(client),
      getWithAuthorization(client, "Bearer x", "with an unknown token"),
    ]);
    const responses = await Promise.all(pairs.flat());
    responses.forEach((response, index) => {
      const isValid = index % 2 === 0;
      if (isValid)
        response.expect(
          response.ok && response.text === name,
          "the client's name in each concurrent response",
        );
      else response.expect(!response.ok, "a rejection of each concurrent request with an unknown token");
    });
  },

  async "bearer.missing.401"(client: TargetClient) {
    (await client.send("GET", path, { note: "without credentials" })).expectStatus(401);
  },

  async "bearer.missing.challenge"(client: TargetClient) {
    expectChallenge(await client.send("GET", path, { note: "without credentials" }));
  },

  async "bearer.empty.401"(client: TargetClient) {
    expectUnauthorized(await getWithAuthorization(client, "Bearer", "with the scheme Bearer and no token"));
  },

  async "bearer.unknown.401"(client: TargetClient) {
    for (const token of unknownTokens) (await getWithUnknownToken(client, token)).expectStatus(401);
  },

  async "bearer.unknown.challenge"(client: TargetClient) {
    for (const token of unknownTokens) expectChallenge(await getWithUnknownToken(client, token));
  },

  async "bearer.near-miss.401"(client: TargetClient) {
    for (const [note, token] of similarTokens(client.target.token)) {
      expectUnauthorized(await getWithAuthorization(client, `Bearer ${token}`, `with the token ${note}`));
    }
  },

  async "bearer.scheme.401"(client: TargetClient) {
    const { token, user } = client.target;
    const schemes = ["Basic ", "Digest ", "Token ", "BearerX ", "Bearer", "ApiKey ", ""];
    for (const scheme of schemes) {
      const note = `with the token and the scheme “${scheme.trim()}”`;
      expectUnauthorized(await getWithAuthorization(client, scheme + token, note));
    }
    for (const pair of [`client:${token}`, `${token}:`, `${token}:${token}`])
      expectUnauthorized(
        await getWithAuthorization(client, `Basic ${btoa(pair)}`, "with the token in Basic credentials"),
      );
    const foreign = basic(user.name, user.password);
    if (user.name !== "")
      expectUnauthorized(await getWithAuthorization(client, foreign, "with valid Basic credentials"));
    // Only the Authorization header authenticates.
    for (const name of ["x-api-key", "x-auth-token", "x-authorization", "proxy-authorization", "token"]) {
      const note = `with the token in the header ${name}`;
      expectUnauthorized(await client.send("GET", path, { headers: { [name]: `Bearer ${token}` }, note }));
      expectUnauthorized(await client.send("GET", path, { headers: { [name]: token }, note }));
    }
    const cookie = ["token", "access_token", "authorization"].map((name) => `${name}=${token}`).join("; ");
    expectUnauthorized(
      await client.send("GET", path, { headers: { cookie }, note: "with the token in cookies" }),
    );
    const secret = encodeURIComponent(token);
    const query = ["token", "access_token", "api_key"].map((name) => `${name}=${secret}`).join("&");
    const response = await client.send("GET", `${path}?${query}`, { note: "the token" });
    expectUnauthorized(response);
  },

  async "bearer.refused.no-name"(client: TargetClient) {
    const name = await readName(client);
    const rejected = [
      await client.send("GET", path, { note: "without credentials" }),
      await getWithUnknownToken(client, "conformance-unknown-token"),
      ...(await Promise.all(pathVariants.map((variant) => client.sendRaw("GET", variant)))),
    ];
    for (const response of rejected)
      response.expect(
        !response.text.split(/\r?\n/).includes(name.trim()),
        "no client's name in the response",
      );
  },

  async "bearer.router"(client: TargetClient) {
    for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE"])
      await expectGuarded(client, method, path);
    for (const suffix of ["/", "/no-such", "/no/such"]) await expectGuarded(client, "GET", path + suffix);
  },
} as const satisfies Cases;

/** Tokens that a careless comparison or lookup takes for the known one. */
function similarTokens(token: string): [note: string, token: string][] {
  const hash = (encoding: "hex" | "base64") => createHash("sha256").update(token).digest(encoding);
  const middle = Math.floor(token.length / 2);
  const all: [string, string][] = [
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
  return all.filter(([, similar]) => similar !== token && similar !== "");
}

/** Paths that a router or guard may confuse with /api/whoami. */
const pathVariants = [
  "/api/%77hoami",
  "//api/whoami",
  "/api//whoami",
  "/x/../api/whoami",
  "/api/./whoami",
  "/api/WHOAMI",
];

function getWithKnownToken(client: TargetClient): Promise<CapturedResponse> {
  return getWithAuthorization(client, `Bearer ${client.target.token}`, "with the known token");
}

async function readName(client: TargetClient): Promise<string> {
  const response = await getWithKnownToken(client);
  response.expect(response.ok && response.text.trim() !== "", "a name");
  return response.text;
}

function getWithUnknownToken(client: TargetClient, token: string): Promise<CapturedResponse> {
  return getWithAuthorization(client, `Bearer ${token}`, `with an unknown token of length ${token.length}`);
}

function getWithAuthorization(
  client: TargetClient,
  authorization: string,
  note: string,
): Promise<CapturedResponse> {
  return client.send("GET", path, { headers: { authorization }, note });
}

function expectUnauthorized(response: CapturedResponse): void {
  response.expectStatus(401);
  expectChallenge(response);
}

function expectChallenge(response: CapturedResponse): void {
  response.expect((response.headers.get("www-authenticate") ?? "") !== "", "a WWW-Authenticate header");
}

async function expectGuarded(client: TargetClient, method: string, path: string): Promise<void> {
  const unknown = {
    headers: { authorization: "Bearer conformance-unknown-token" },
    note: "with an unknown token",
  };
  for (const options of [{ note: "without credentials" }, unknown]) {
    const response = await client.send(method, path, options);
    response.expect(!response.ok, "no 2xx status");
  }
}
