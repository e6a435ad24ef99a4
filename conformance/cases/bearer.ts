/** GET /api/whoami answers only for a known bearer token (sections 4, 5 and 7). */
import type { Cases } from "../case.ts";
import type { Answer, Service } from "../service.ts";

const path = "/api/whoami";
const unknown = ["conformance-unknown-token", "x", "0", "null", "undefined", "__proto__", "x".repeat(500)];

export const cases: Cases = {
  // The known token first, before anything a server might count against us.
  async "whoami.200"(service) {
    (await ask(service)).expectStatus(200);
  },

  async "whoami.name"(service) {
    const answer = await ask(service);
    const { clientName } = service.target;
    if (clientName !== undefined) return answer.expect(answer.text === clientName, `exactly “${clientName}”`);
    const { json } = answer;
    const isJson = typeof json === "string" || (typeof json === "object" && json !== null);
    answer.expect(answer.ok && answer.text.trim() !== "" && !isJson, "a name, as plain text");
  },

  async "whoami.text"(service) {
    const answer = await ask(service);
    answer.expect(/^(text\/.*)?$/i.test(answer.contentType), "a text content type");
  },

  async "client.request"(service) {
    const name = await nameOf(service);
    const pairs = Array.from({ length: 10 }, () => [
      ask(service),
      askAs(service, "Bearer x", "with an unknown token"),
    ]);
    const answers = await Promise.all(pairs.flat());
    answers.forEach((answer, index) => {
      const known = index % 2 === 0;
      if (known) answer.expect(answer.ok && answer.text === name, "the client's name, amid unknown callers");
      else answer.expect(!answer.ok, "a refusal, amid known callers");
    });
  },

  async "bearer.missing.401"(service) {
    (await service.send("GET", path, { as: "without credentials" })).expectStatus(401);
  },

  async "bearer.missing.challenge"(service) {
    expectChallenge(await service.send("GET", path, { as: "without credentials" }));
  },

  async "bearer.empty.401"(service) {
    expectUnauthorized(await askAs(service, "Bearer", "with a scheme and no token"));
  },

  async "bearer.unknown.401"(service) {
    for (const token of unknown) (await askUnknown(service, token)).expectStatus(401);
  },

  async "bearer.unknown.challenge"(service) {
    for (const token of unknown) expectChallenge(await askUnknown(service, token));
  },

  async "bearer.near-miss.401"(service) {
    for (const [as, token] of nearMisses(service.target.token)) {
      expectUnauthorized(await askAs(service, `Bearer ${token}`, as));
    }
  },

  async "bearer.scheme.401"(service) {
    const { token } = service.target;
    const schemes = ["Basic ", "Digest ", "Token ", "BearerX ", ""];
    for (const scheme of schemes) {
      const as = `with the token under the scheme “${scheme.trim()}”`;
      expectUnauthorized(await askAs(service, scheme + token, as));
    }
  },

  async "bearer.refused.no-name"(service) {
    const name = await nameOf(service);
    const refused = [
      await service.send("GET", path, { as: "without credentials" }),
      await askUnknown(service, "conformance-unknown-token"),
      ...(await Promise.all(spellings.map((spelling) => service.raw("GET", spelling)))),
    ];
    for (const answer of refused) answer.expect(answer.text.trim() !== name.trim(), "no client's name");
  },

  async "bearer.router"(service) {
    for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE"])
      await expectGuarded(service, method, path);
    for (const below of ["/", "/no-such", "/no/such"]) await expectGuarded(service, "GET", path + below);
  },
};

/** Paths that a careless router or guard may read as /api/whoami. */
const spellings = [
  "/api/%77hoami",
  "//api/whoami",
  "/api//whoami",
  "/x/../api/whoami",
  "/api/./whoami",
  "/api/WHOAMI",
];

function ask(service: Service): Promise<Answer> {
  return askAs(service, `Bearer ${service.target.token}`, "with the known token");
}

async function nameOf(service: Service): Promise<string> {
  const answer = await ask(service);
  answer.expect(answer.ok && answer.text.trim() !== "", "a name");
  return answer.text;
}

function askUnknown(service: Service, token: string): Promise<Answer> {
  return askAs(service, `Bearer ${token}`, `with an unknown token of length ${token.length}`);
}

function askAs(service: Service, authorization: string, as: string): Promise<Answer> {
  return service.send("GET", path, { headers: { authorization }, as });
}

function expectUnauthorized(answer: Answer): void {
  answer.expectStatus(401);
  expectChallenge(answer);
}

function expectChallenge(answer: Answer): void {
  answer.expect((answer.headers.get("www-authenticate") ?? "") !== "", "a WWW-Authenticate header");
}

/** Each differs from the token by little, in the places where a careless comparison stops looking. */
function nearMisses(token: string): [as: string, token: string][] {
  const other = (character: string) => (character === "a" ? "b" : "a");
  const swapped = token.replace(/[a-z]/gi, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  );
  const all: [string, string][] = [
    ["with the token's first character changed", other(token.slice(0, 1)) + token.slice(1)],
    ["with the token's last character changed", token.slice(0, -1) + other(token.slice(-1))],
    ["with the token less its first character", token.slice(1)],
    ["with the token less its last character", token.slice(0, -1)],
    ["with the token and one character more", `${token}a`],
    ["with the token twice over", token + token],
    ["with the token in the other case", swapped],
  ];
  return all.filter(([, near]) => near !== token && near !== "");
}

async function expectGuarded(service: Service, method: string, path: string): Promise<void> {
  const answer = await service.send(method, path, { as: "without credentials" });
  answer.expect(!answer.ok, "no success");
}
