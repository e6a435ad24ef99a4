/** GET /api/whoami requires a known bearer token (sections 4, 5 and 7). */
import type { Cases } from "../case.ts";
import { similarSecrets } from "../similar-secrets.ts";
import type { CapturedResponse, TargetClient } from "../target-client.ts";

const path = "/api/whoami";
const unknownTokens = [
  "conformance-unknown-token",
  "x",
  "0",
  "null",
  "undefined",
  "__proto__",
  "x".repeat(500),
];

export const cases: Cases = {
  // The known token comes first, because a server may limit the requests of a client that failed before.
  async "whoami.200"(client) {
    for (let n = 0; n < 2; n += 1) (await getWithKnownToken(client)).expectStatus(200);
  },

  async "whoami.name"(client) {
    const response = await getWithKnownToken(client);
    const { clientName } = client.target;
    if (clientName !== undefined)
      return response.expect(response.text === clientName, `exactly “${clientName}”`);
    const { json } = response;
    const isJson = typeof json === "string" || (typeof json === "object" && json !== null);
    response.expect(response.ok && response.text.trim() !== "" && !isJson, "a name as plain text");
  },

  async "whoami.text"(client) {
    const response = await getWithKnownToken(client);
    response.expect(/^(text\/.*)?$/i.test(response.contentType), "a text content type");
  },

  async "client.request"(client) {
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

  async "bearer.missing.401"(client) {
    (await client.send("GET", path, { note: "without credentials" })).expectStatus(401);
  },

  async "bearer.missing.challenge"(client) {
    expectChallenge(await client.send("GET", path, { note: "without credentials" }));
  },

  async "bearer.empty.401"(client) {
    expectUnauthorized(await getWithAuthorization(client, "Bearer", "with the scheme Bearer and no token"));
  },

  async "bearer.unknown.401"(client) {
    for (const token of unknownTokens) (await getWithUnknownToken(client, token)).expectStatus(401);
  },

  async "bearer.unknown.challenge"(client) {
    for (const token of unknownTokens) expectChallenge(await getWithUnknownToken(client, token));
  },

  async "bearer.near-miss.401"(client) {
    for (const [note, token] of similarSecrets(client.target.token)) {
      expectUnauthorized(await getWithAuthorization(client, `Bearer ${token}`, `with the token ${note}`));
    }
  },

  async "bearer.scheme.401"(client) {
    const { token } = client.target;
    const schemes = ["Basic ", "Digest ", "Token ", "BearerX ", ""];
    for (const scheme of schemes) {
      const note = `with the token and the scheme “${scheme.trim()}”`;
      expectUnauthorized(await getWithAuthorization(client, scheme + token, note));
    }
    const basic = `Basic ${btoa(`client:${token}`)}`;
    expectUnauthorized(await getWithAuthorization(client, basic, "with the token as a Basic password"));
  },

  async "bearer.refused.no-name"(client) {
    const name = await readName(client);
    const rejected = [
      await client.send("GET", path, { note: "without credentials" }),
      await getWithUnknownToken(client, "conformance-unknown-token"),
      ...(await Promise.all(pathVariants.map((variant) => client.sendRaw("GET", variant)))),
    ];
    for (const response of rejected)
      response.expect(response.text.trim() !== name.trim(), "no client's name in the response");
  },

  async "bearer.router"(client) {
    for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE"])
      await expectGuarded(client, method, path);
    for (const suffix of ["/", "/no-such", "/no/such"]) await expectGuarded(client, "GET", path + suffix);
  },
};

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
