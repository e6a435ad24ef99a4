// cspell:ignore odos ftodos fapi
/** Rules of private mode: every path requires credentials, except the health checks and CORS preflights. */
import type { Cases } from "../case.ts";
import { type CapturedResponse, ownProperty, type TargetClient } from "../target-client.ts";
import { everyOperation } from "./api.ts";

type Options = NonNullable<Parameters<TargetClient["send"]>[2]>;
type Credential = readonly [note: string, authorization: string];

const todosPath = "/api/todos";
const anonymous = { credentials: "omit", note: "without credentials" } as const;
const foreignOrigin = "https://conformance.invalid";

const program: Options = { ...anonymous, note: "without credentials and Sec-Fetch-*" };
const navigation: Options = {
  ...anonymous,
  headers: { "sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
  note: "without credentials, as a navigation",
};
const pageRequests: readonly Options[] = [
  ["cors", "empty"],
  ["same-origin", "empty"],
  ["no-cors", "image"],
].map(([mode = "", destination = ""]) => ({
  ...anonymous,
  headers: { "sec-fetch-site": "same-origin", "sec-fetch-mode": mode, "sec-fetch-dest": destination },
  note: `without credentials, with Sec-Fetch-Mode: ${mode}`,
}));

export const cases: Cases = {
  // Valid credentials come first, because a server that counts failed logins may lock the user out.
  async "private.token.accepted"(client) {
    await expectAccepted(client, [bearer(client.target.token)]);
  },

  async "private.user.accepted"(client) {
    await expectAccepted(client, [userCredential(client)]);
  },

  async "private.password.accepted"(client) {
    const { token } = client.target;
    await expectAccepted(client, [
      tokenAsPassword(token),
      ["with the token as the password of an empty user name", basic("", token)],
    ]);
  },

  async "private.guard.path"(client) {
    const { id } = await client.create();
    const paths = [
      "/",
      "/docs",
      "/favicon.ico",
      "/api/openapi.json",
      todosPath,
      `${todosPath}?limit=1`,
      `${todosPath}/${id}`,
      "/api/events",
      "/api/whoami",
      "/admin/",
    ];
    for (const path of paths) (await client.send("GET", path, anonymous)).expectStatus(401);
  },

  async "private.guard.unknown-path"(client) {
    const paths = [
      "/no-such",
      "/no/such",
      "/assets/no-such.js",
      "/api",
      "/api/no-such",
      "/api/v1/todos",
      `${todosPath}/`,
      `${todosPath}/1/no-such`,
      "/api/whoami/no-such",
      "/admin/no-such",
      "/livez/",
      "/livez/no-such",
      "/readyz/",
      "/metrics",
    ];
    for (const path of paths) (await client.send("GET", path, anonymous)).expectStatus(401);
  },

  async "private.guard.method"(client) {
    const absent = `${todosPath}/${await client.createAndDelete()}`;
    for (const path of [todosPath, absent, "/", "/no-such", "/api/events", "/api/whoami", "/admin/"])
      for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
        (await client.send(method, path, anonymous)).expectStatus(401);
  },

  async "private.guard.input"(client) {
    const { id } = await client.create();
    const requests: readonly (readonly [method: string, path: string, options: Options])[] = [
      ["GET", `${todosPath}/abc`, {}],
      ["DELETE", `${todosPath}/abc`, {}],
      ["PATCH", `${todosPath}/abc`, { json: { done: true } }],
      ["PATCH", `${todosPath}/${id}`, { body: "{" }],
      ["PATCH", `${todosPath}/${id}`, { json: {} }],
      ["POST", todosPath, { body: "{" }],
      ["POST", todosPath, { json: {} }],
      ["POST", todosPath, { json: { title: "" } }],
    ];
    for (const [method, path, options] of requests)
      (await client.send(method, path, { ...options, ...anonymous })).expectStatus(401);
  },

  async "private.guard.not-modified"(client) {
    const { response } = await client.list();
    const etag = response.headers.get("etag");
    for (const tag of ["*", ...(etag === null ? [] : [etag])]) {
      const headers = { "if-none-match": tag };
      const note = "with If-None-Match, without valid credentials";
      const rejected = [
        await client.send("GET", todosPath, { ...anonymous, headers, note }),
        await client.send("GET", todosPath, { headers: { ...headers, authorization: "Bearer x" }, note }),
      ];
      for (const response of rejected) response.expectStatus(401);
    }
  },

  async "private.guard.unchanged"(client) {
    for (const options of [
      anonymous,
      withCredential(["with an unknown token", "Bearer conformance-unknown-token"]),
    ])
      await expectUnchanged(client, options);
  },

  async "private.guard.variants"(client) {
    const { id, title } = await client.create();
    for (const path of pathVariants(id)) {
      const response = await client.sendRaw("GET", path);
      response.expect(!response.text.includes(title), "no to-do in the response");
    }
  },

  async "private.health.open"(client) {
    for (const path of ["/livez", "/readyz"]) {
      const response = await client.send("GET", path, anonymous);
      response.expect(![401, 403, 407].includes(response.status), "no request for credentials");
    }
  },

  async "private.preflight.open"(client) {
    const { corsOrigin } = client.target;
    for (const path of [todosPath, `${todosPath}/1`]) {
      const response = await client.send("OPTIONS", path, preflight(corsOrigin, "as a preflight"));
      response.expect(response.ok, "a 2xx status");
      const allowed = response.headers.get("access-control-allow-origin") ?? "";
      response.expect(["*", corsOrigin].includes(allowed), "Access-Control-Allow-Origin with the origin");
    }
  },

  async "private.challenge.both"(client) {
    for (const response of await getEach(client, [program, navigation])) {
      const schemes = challengesOf(response).map(({ scheme }) => scheme);
      response.expect(
        schemes.includes("basic") && schemes.includes("bearer"),
        "a Basic and a Bearer challenge in WWW-Authenticate",
      );
    }
  },

  async "private.challenge.bearer"(client) {
    for (const response of await getEach(client, pageRequests)) {
      const schemes = challengesOf(response).map(({ scheme }) => scheme);
      response.expect(schemes.join() === "bearer", "a Bearer challenge alone in WWW-Authenticate");
    }
  },

  async "private.challenge.realm"(client) {
    for (const response of await getEach(client, [program, navigation, ...pageRequests]))
      for (const { scheme, parameters } of challengesOf(response))
        response.expect(parameters.get("realm") === "todo", `realm="todo" in the ${scheme} challenge`);
  },

  async "private.challenge.vary"(client) {
    for (const response of await getEach(client, [program, navigation, ...pageRequests]))
      response.expect(
        varyOf(response).some((name) => name === "*" || name.startsWith("sec-fetch-")),
        "Sec-Fetch-Mode in Vary",
      );
  },

  async "private.admin.realm"(client) {
    const response = await client.send("GET", "/admin/", anonymous);
    const challenge = challengesOf(response).find(({ scheme }) => scheme === "basic");
    response.expect(challenge?.parameters.get("realm") !== "todo", 'a realm other than "todo"');
  },

  async "private.token.rejected"(client) {
    const { token } = client.target;
    await expectUnauthorized(client, [
      ["with an unknown token", "Bearer conformance-unknown-token"],
      ["with a short unknown token", "Bearer x"],
      ["with the token without its last character", `Bearer ${token.slice(0, -1)}`],
      ["with the token and one more character", `Bearer ${token}a`],
      ["with the scheme Bearer and no token", "Bearer"],
      ["with two words after Bearer", "Bearer a b"],
      ["with an unknown token as the password", basic("conformance", "conformance-unknown-token")],
      ["with a header that is not a credential", "Nonsense"],
    ]);
  },

  async "private.user.rejected"(client) {
    const { name, password } = client.target.user;
    await expectUnauthorized(client, [
      ["with a wrong password", basic(name, "conformance-wrong-password")],
      ["with the password without its last character", basic(name, password.slice(0, -1))],
      ["with no password", basic(name, "")],
      ["with an unknown user and the right password", basic("conformance-nobody", password)],
      ["with malformed Basic credentials", "Basic !!!"],
      ["with Basic credentials without a colon", `Basic ${btoa("no colon")}`],
    ]);
  },

  async "private.scheme.rejected"(client) {
    const { token } = client.target;
    await expectUnauthorized(
      client,
      ["Basic ", "Digest ", "Token ", "BearerX ", ""].map((scheme) => [
        `with the token and the scheme “${scheme.trim()}”`,
        scheme + token,
      ]),
    );
  },

  async "private.whoami.bearer-only"(client) {
    for (const credential of [userCredential(client), tokenAsPassword(client.target.token)])
      (await client.send("GET", "/api/whoami", withCredential(credential))).expectStatus(401);
  },

  async "private.admin.users-only"(client) {
    const { token, user } = client.target;
    const credentials: readonly Credential[] = [
      bearer(token),
      tokenAsPassword(token),
      ["with the token as the password of the user", basic(user.name, token)],
    ];
    for (const credential of credentials)
      (await client.send("GET", "/admin/", withCredential(credential))).expect4xx();
  },

  async "private.read.accepted"(client) {
    const { id } = await client.create();
    for (const options of readCredentials(client)) {
      for (const path of [todosPath, `${todosPath}/${id}`]) {
        const response = await client.send("GET", path, options);
        response.expect(response.ok, "a 2xx status");
      }
      for (const [method, path] of [
        ["HEAD", todosPath],
        ["GET", "/api/events"],
      ] as const) {
        const response = await client.send(method, path, options);
        response.expect(![401, 403].includes(response.status), "no rejection of the credentials");
      }
    }
    const [asBearer] = readCredentials(client);
    (await client.send("GET", "/api/whoami", asBearer)).expectStatus(200);
  },

  async "private.read.rejected"(client) {
    for (const options of readCredentials(client))
      await expectUnchanged(client, options, (response) => response.expectStatus(403));
  },

  async "private.read.challenge"(client) {
    for (const options of readCredentials(client)) {
      const response = await client.send("POST", todosPath, {
        ...options,
        json: { title: client.uniqueTitle() },
      });
      response.expectStatus(403);
      const challenge = challengesOf(response).find(({ scheme }) => scheme === "bearer");
      response.expect(
        challenge?.parameters.get("error") === "insufficient_scope",
        'a Bearer challenge with error="insufficient_scope"',
      );
    }
  },

  async "private.basic.own-origin"(client) {
    const { origin } = new URL(client.target.baseUrl);
    for (const [note, authorization] of basicCredentials(client))
      for (const headers of [
        { origin, "sec-fetch-site": "same-origin" },
        { origin },
        { "sec-fetch-site": "none" },
      ])
        for (const response of await everyOperation(
          client,
          { authorization, ...headers },
          `${note}, from the server's own origin`,
        ))
          response.expect(response.ok, "a 2xx status");
  },

  async "private.basic.cross-site"(client) {
    for (const [note, authorization] of basicCredentials(client))
      for (const headers of [
        { origin: foreignOrigin, "sec-fetch-site": "cross-site" },
        { origin: foreignOrigin, "sec-fetch-site": "same-site" },
        { origin: foreignOrigin },
        { origin: "null" },
      ]) {
        const options = { headers: { authorization, ...headers }, note: `${note}, from another origin` };
        await expectUnchanged(client, options, (response) => response.expectStatus(403));
      }
  },

  async "private.cors.no-credentials"(client) {
    const { baseUrl, corsOrigin, token, user } = client.target;
    const origins = [
      new URL(baseUrl).origin,
      foreignOrigin,
      "null",
      ...(corsOrigin === "" ? [] : [corsOrigin]),
    ];
    for (const origin of origins) {
      const note = `with Origin: ${origin}`;
      const responses = [
        await client.send("OPTIONS", todosPath, preflight(origin, `${note}, as a preflight`)),
        await client.send("GET", todosPath, { ...anonymous, headers: { origin }, note }),
      ];
      for (const authorization of [`Bearer ${token}`, basic(user.name, token)]) {
        const headers = { origin, authorization };
        responses.push(await client.send("GET", todosPath, { headers, note }));
        responses.push(await client.send("POST", todosPath, { headers, note, json: { title: "" } }));
      }
      for (const response of responses)
        response.expect(
          !response.headers.has("access-control-allow-credentials"),
          "no Access-Control-Allow-Credentials",
        );
    }
  },

  async "private.cache.private"(client) {
    for (const response of await cacheableResponses(client))
      response.expect(
        /(^|[\s,])(private|no-store)\s*(,|$)/i.test(response.headers.get("cache-control") ?? ""),
        "private or no-store in Cache-Control",
      );
  },

  async "private.cache.vary"(client) {
    for (const response of await cacheableResponses(client))
      response.expect(
        varyOf(response).some((name) => name === "*" || name === "authorization"),
        "Authorization in Vary",
      );
  },

  async "private.idempotency"(client) {
    const json = { title: client.uniqueTitle() };
    const key = crypto.randomUUID();
    const ids: unknown[] = [];
    for (const [sender, authorization] of [bearer(client.target.token), userCredential(client)]) {
      const headers = { authorization, "idempotency-key": key };
      const note = `${sender} and an Idempotency-Key`;
      const response = await client.send("POST", todosPath, { json, headers, note });
      const id = ownProperty(response.json, "id");
      response.expect(response.ok && id !== undefined && !ids.includes(id), "a to-do of its own");
      ids.push(id);
    }
  },
};

/** Paths that a router or guard may confuse with the to-dos. */
function pathVariants(id: bigint): string[] {
  const inner = [
    "//api/todos",
    "/api//todos",
    "/%61pi/todos",
    "/api/%74odos",
    "/api%2ftodos",
    "/x/../api/todos",
    "/livez/../api/todos",
    "/livez/%2e%2e/api/todos",
    "/livez/..%2fapi/todos",
    "/livez//api/todos",
    "/api/./todos",
    "/api/TODOS",
    "/api/todos;/livez",
  ];
  return [
    ...inner.flatMap((path) => [path, `${path}/${id}`]),
    "/api/todos/",
    "/api/todos?/livez",
    `/api/todos/${id}/`,
    `/api/todos/%3${String(id).slice(0, 1)}${String(id).slice(1)}`,
  ];
}

function basic(name: string, password: string): string {
  return `Basic ${Buffer.from(`${name}:${password}`).toString("base64")}`;
}

function bearer(token: string): Credential {
  return ["with the token", `Bearer ${token}`];
}

function tokenAsPassword(token: string): Credential {
  return ["with the token as a password", basic("conformance", token)];
}

function userCredential(client: TargetClient): Credential {
  const { name, password } = client.target.user;
  return ["with the user and password", basic(name, password)];
}

function basicCredentials(client: TargetClient): readonly Credential[] {
  return [userCredential(client), tokenAsPassword(client.target.token)];
}

/** Returns the requests options of the token that may only read: as a bearer token, and as a password. */
function readCredentials(client: TargetClient): readonly [Options, Options] {
  const { readToken } = client.target;
  return [
    { headers: { authorization: `Bearer ${readToken}` }, note: "with the read token" },
    {
      headers: { authorization: basic("conformance", readToken) },
      note: "with the read token as a password",
    },
  ];
}

function withCredential([note, authorization]: Credential): Options {
  return { headers: { authorization }, note };
}

function preflight(origin: string, note: string): Options {
  return {
    credentials: "omit",
    headers: {
      origin,
      "access-control-request-method": "DELETE",
      "access-control-request-headers": "authorization",
    },
    note,
  };
}

async function expectAccepted(client: TargetClient, credentials: readonly Credential[]): Promise<void> {
  for (const [note, authorization] of credentials)
    for (const response of await everyOperation(client, { authorization }, note))
      response.expect(response.ok, "a 2xx status");
}

async function expectUnauthorized(client: TargetClient, credentials: readonly Credential[]): Promise<void> {
  for (const credential of credentials)
    (await client.send("GET", todosPath, withCredential(credential))).expectStatus(401);
}

/** Sends each write with these options, checks the responses, and then that the list shows no change. */
async function expectUnchanged(
  client: TargetClient,
  options: Options,
  check: (response: CapturedResponse) => void = () => {},
): Promise<void> {
  const { id, title } = await client.create();
  const newTitle = client.uniqueTitle();
  const path = `${todosPath}/${id}`;
  check(await client.send("POST", todosPath, { ...options, json: { title: newTitle } }));
  check(await client.send("PATCH", path, { ...options, json: { done: true } }));
  check(await client.send("DELETE", path, options));
  const { todos, response } = await client.list();
  const isCreated = todos.some((todo) => ownProperty(todo, "title") === newTitle);
  response.expect(!isCreated, `no to-do from a rejected POST ${options.note ?? ""}`);
  const stored = todos.find((todo) => ownProperty(todo, "title") === title);
  response.expect(
    ownProperty(stored, "done") === false,
    `the to-do ${id} unchanged after a rejected PATCH and DELETE ${options.note ?? ""}`,
  );
}

/** Returns the responses to GET of a known and of an unknown path, with each of these options. */
async function getEach(client: TargetClient, requests: readonly Options[]): Promise<CapturedResponse[]> {
  const responses: CapturedResponse[] = [];
  for (const options of requests)
    for (const path of [todosPath, "/", "/no-such"]) responses.push(await client.send("GET", path, options));
  return responses;
}

async function cacheableResponses(client: TargetClient): Promise<CapturedResponse[]> {
  const { id } = await client.create();
  const note = "with the token";
  return [
    await client.send("GET", todosPath, { note }),
    await client.send("GET", `${todosPath}/${id}`, { note }),
    await client.send("GET", "/", { note }),
    await client.send("GET", "/no-such", { note }),
  ];
}

function varyOf({ headers }: CapturedResponse): string[] {
  return (headers.get("vary") ?? "").split(",").map((name) => name.trim().toLowerCase());
}

interface Challenge {
  readonly scheme: string;
  readonly parameters: Map<string, string>;
}

/** Parses `WWW-Authenticate` (RFC 9110, section 11.6.1). A word without "=" starts a challenge. */
function challengesOf({ headers }: CapturedResponse): Challenge[] {
  const challenges: Challenge[] = [];
  const words = /([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))|[\w-]+/g;
  for (const [word, name, quoted, plain = ""] of (headers.get("www-authenticate") ?? "").matchAll(words)) {
    if (name === undefined) challenges.push({ scheme: word.toLowerCase(), parameters: new Map() });
    else challenges.at(-1)?.parameters.set(name.toLowerCase(), quoted ?? plain);
  }
  return challenges;
}
