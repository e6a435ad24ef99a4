/**
 * GET /admin/ greets only users with valid Basic credentials (sections 4 and 5). The specification does not show the
 * status of a rejection, so every 3xx and 4xx status is accepted.
 */
import type { Cases } from "../case.ts";
import { similarSecrets } from "../similar-secrets.ts";
import type { CapturedResponse, TargetClient } from "../target-client.ts";
import { basic } from "../walk.ts";

const path = "/admin/";

export const cases = {
  // Valid credentials come first, because a server that counts failed logins may lock the user out.
  async "admin.200"(client: TargetClient) {
    (await getWithCredentials(client)).expectStatus(200);
  },

  async "admin.greeting"(client: TargetClient) {
    const response = await getWithCredentials(client);
    const { name } = client.target.user;
    response.expect(response.ok && response.text.includes(name), `a greeting for “${name}”`);
  },

  async "admin.text"(client: TargetClient) {
    const response = await getWithCredentials(client);
    response.expect(/^(text\/.*)?$/i.test(response.contentType), "a text content type");
    response.expect(typeof response.json !== "object", "text, not JSON");
  },

  async "basicuser.request"(client: TargetClient) {
    const greeting = await readGreeting(client);
    const pairs = Array.from({ length: 4 }, () => [
      getWithCredentials(client),
      getWithoutCredentials(client),
    ]);
    const responses = await Promise.all(pairs.flat());
    responses.forEach((response, index) => {
      const isValid = index % 2 === 0;
      if (isValid)
        response.expect(
          response.ok && response.text === greeting,
          "the greeting in each concurrent response",
        );
      else response.expect(!response.ok, "a rejection of each concurrent request without credentials");
    });
  },

  async "basic.missing.refused"(client: TargetClient) {
    expectRejected(await getWithoutCredentials(client));
  },

  async "basic.malformed.refused"(client: TargetClient) {
    const malformed = [
      "Basic",
      "Basic !!!",
      `Basic ${btoa("no colon")}`,
      basic("", ""),
      basic("kit-nobody", "x"),
    ];
    for (const authorization of malformed)
      expectRejected(
        await getWithAuthorization(client, authorization, "with malformed or unknown credentials"),
      );
  },

  // At most nine wrong passwords for the user, because many servers lock a user out after ten.
  async "basic.password.refused"(client: TargetClient) {
    const { name, password } = client.target.user;
    const plain = password.normalize("NFD").replace(/\p{M}/gu, "");
    const wrong: [string, string][] = [
      plain === password ? ["a wrong password", "kit-wrong"] : ["the password without accents", plain],
      ["no password", ""],
      ["the password and a space", `${password} `],
      ["the password, a NUL byte and a character", `${password}\0a`],
      ...similarSecrets(password).map(([note, guess]): [string, string] => [`the password ${note}`, guess]),
    ];
    for (const [note, guess] of wrong.filter(([, guess]) => guess !== password))
      expectRejected(await getWithAuthorization(client, basic(name, guess), `with ${note}`));
  },

  async "basic.user.refused"(client: TargetClient) {
    const { name, password } = client.target.user;
    const wrong: [string, string][] = [
      ...[
        "kit-nobody-2",
        "",
        `${name}x`,
        `${name} `,
        ` ${name}`,
        name.slice(0, -1),
        name.slice(1),
        `${name}\0x`,
        name + name,
      ]
        .concat([...new Set([name.toUpperCase(), name.toLowerCase()])].filter((other) => other !== name))
        .map((guess): [string, string] => [guess, password]),
      [password, name],
      [password, password],
      // Without the colon between them, these are equal to the valid credentials.
      [name.slice(0, -1), name.slice(-1) + password],
    ];
    for (const [guess, secret] of wrong.filter(([guess]) => guess !== name))
      expectRejected(await getWithAuthorization(client, basic(guess, secret), "with a wrong user"));
  },

  async "basic.scheme.refused"(client: TargetClient) {
    const { token, user } = client.target;
    const valid = basic(user.name, user.password);
    const foreign = token === "" ? [] : [`Bearer ${token}`, `Basic ${token}`];
    for (const authorization of [
      ...["Bearer ", "Digest ", "Basic", ""].map((scheme) => valid.replace("Basic ", scheme)),
      ...foreign,
    ]) {
      const note = `with valid credentials and the scheme “${authorization === valid ? "" : authorization.split(" ")[0]?.slice(0, 6)}”`;
      expectRejected(await getWithAuthorization(client, authorization, note));
    }
    for (const name of ["x-authorization", "proxy-authorization"])
      expectRejected(
        await client.send("GET", path, {
          headers: { [name]: valid },
          note: `with valid credentials in the header ${name}`,
        }),
      );
  },

  async "basic.refused.no-greeting"(client: TargetClient) {
    const greeting = await readGreeting(client);
    const rejected = [
      await getWithoutCredentials(client),
      await getWithAuthorization(client, basic("kit-nobody-3", "x"), "with unknown credentials"),
      ...(await Promise.all(pathVariants.map((variant) => client.sendRaw("GET", variant)))),
    ];
    for (const response of rejected)
      response.expect(!response.text.includes(greeting), "no greeting in the response");
  },

  async "basic.router"(client: TargetClient) {
    const unknown = {
      headers: { authorization: basic("kit-nobody-4", "x") },
      note: "with unknown credentials",
    };
    for (const options of [{ note: "without credentials" }, unknown]) {
      for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE"])
        expectNotOk(await client.send(method, path, options));
      for (const suffix of ["no-such", "no/such"])
        expectNotOk(await client.send("GET", path + suffix, options));
    }
  },

  async "basic.realm"(client: TargetClient) {
    const response = await getWithoutCredentials(client);
    const challenge = response.headers.get("www-authenticate") ?? "";
    response.expect(
      !/\bbasic\b/i.test(challenge) || /\brealm\s*=/i.test(challenge),
      "a Basic challenge with a realm",
    );
  },
} as const satisfies Cases;

/** Paths that a router or guard may confuse with /admin/. */
const pathVariants = [
  "/admin",
  "//admin/",
  "/%61dmin/",
  "/x/../admin/",
  "/admin/.",
  "/admin/x/..",
  "/ADMIN/",
];

function getWithCredentials(client: TargetClient): Promise<CapturedResponse> {
  const { name, password } = client.target.user;
  return getWithAuthorization(client, basic(name, password), "with valid credentials");
}

async function readGreeting(client: TargetClient): Promise<string> {
  const response = await getWithCredentials(client);
  response.expect(response.ok && response.text !== "", "a greeting");
  return response.text;
}

function getWithoutCredentials(client: TargetClient): Promise<CapturedResponse> {
  return client.send("GET", path, { note: "without credentials" });
}

function getWithAuthorization(
  client: TargetClient,
  authorization: string,
  note: string,
): Promise<CapturedResponse> {
  return client.send("GET", path, { headers: { authorization }, note });
}

function expectNotOk(response: CapturedResponse): void {
  response.expect(!response.ok, "no 2xx status");
}

function expectRejected(response: CapturedResponse): void {
  response.expect(response.status >= 300 && response.status < 500, "a 3xx or 4xx status");
}
