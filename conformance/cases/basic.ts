/**
 * GET /admin/ greets only users with valid Basic credentials (sections 4 and 5). The specification does not show the
 * status of a rejection, so every 3xx and 4xx status is accepted.
 */
import examples from "../examples.json" with { type: "json" };
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
  expectWithout,
  getWithCredentials,
  type ProtectedRoute,
  WITHOUT_CREDENTIALS,
  withAuthorization,
  withEach,
} from "./protected-route.ts";

const { injections, loginQuery, logins, userEnds } = examples.credentials;

const admin: ProtectedRoute = {
  path: "/admin/",
  valid: ({ user }) => withAuthorization(basic(user.name, user.password), "with valid credentials"),
  unknown: withAuthorization(basic("kit-nobody", "x"), "with unknown credentials"),
  pathVariants: examples.credentials.adminPaths,
  below: ["/admin/no-such", "/admin/no/such"],
};

/** In the order of `reliesOn`: a case comes after those that it relies on. */
export const cases = {
  // Valid credentials come first, because a server that counts failed logins may lock the user out.
  async "admin.200"(client: TargetClient) {
    (await getWithCredentials(client, admin)).expectStatus(200);
  },

  "admin.text": (client: TargetClient) => expectText(client, admin),

  async "admin.greeting"(client: TargetClient) {
    const response = await getWithCredentials(client, admin);
    const { name } = client.target.user;
    response.expect(response.text.includes(name), `a greeting for “${name}”`);
  },

  "basic.missing.refused": (client: TargetClient) => expectWithout(client, admin, expectRejection),

  "basicuser.request": (client: TargetClient) => expectSeparate(client, admin, WITHOUT_CREDENTIALS),

  async "basic.malformed.refused"(client: TargetClient) {
    const long = `kit-nobody-4:${"x".repeat(2000)}`;
    const others = logins.filter((login) => !login.startsWith(`${client.target.user.name}:`));
    const malformed = ["Basic", "Basic !!!", ...[long, ...others].map((each) => `Basic ${btoa(each)}`)];
    await expectRejected(client, [
      ...malformed.map((authorization) => withAuthorization(authorization, "with malformed credentials")),
      admin.unknown,
    ]);
  },

  // At most nine wrong passwords for the user, because many servers lock a user out after ten.
  async "basic.password.refused"(client: TargetClient) {
    const { name, password } = client.target.user;
    const plain = password.normalize("NFD").replace(/\p{M}/gu, "");
    // The first one is below, with a character that differs in its high byte only.
    const [, ...similar] = similarSecrets(password);
    const sameLowByte = String.fromCharCode(password.charCodeAt(0) + 0x100);
    const wrong: [note: string, password: string][] = [
      ["replaced by nothing", ""],
      ["replaced by the user's name", name],
      ["and a space", `${password} `],
      ["and a NUL byte", `${password}\0`],
      ["with its first character changed", sameLowByte + password.slice(1)],
      ...(plain === password ? similar : similar.with(0, ["without accents", plain])),
    ];
    await expectRejected(client, [
      ...[name, password].map((alone) =>
        withAuthorization(`Basic ${Buffer.from(alone).toString("base64")}`, "with a half of the credentials"),
      ),
      ...wrong
        .filter(([, guess]) => guess !== password)
        .map(([note, guess]) => withAuthorization(basic(name, guess), `with the password ${note}`)),
    ]);
  },

  async "basic.user.refused"(client: TargetClient) {
    const { name, password } = client.target.user;
    const names = [
      "kit-nobody-2",
      "",
      ` ${name}`,
      name.slice(0, -1),
      name.slice(1),
      ...injections,
      ...[...userEnds, name, ...injections].map((end) => name + end),
      ...new Set([name.toUpperCase(), name.toLowerCase()]),
    ];
    const wrong: [name: string, password: string][] = [
      ...names.map((guess): [string, string] => [guess, password]),
      ...injections.map((text): [string, string] => [name + text, text]),
      [password, name],
      [password, password],
      // Without the colon between them, these are equal to the valid credentials.
      [name.slice(0, -1), name.slice(-1) + password],
    ];
    await expectRejected(
      client,
      wrong
        .filter(([guess]) => guess !== name)
        .map(([guess, secret]) => withAuthorization(basic(guess, secret), "with a wrong user")),
    );
  },

  async "basic.scheme.refused"(client: TargetClient) {
    const { token, user } = client.target;
    const valid = basic(user.name, user.password);
    const schemes = ["Bearer ", "Digest ", "Basic", "", "x Basic ", "xBasic "];
    const foreign = token === "" ? [] : [`Bearer ${token}`, `Basic ${token}`, basic("x", token)];
    await expectRejected(client, [
      ...schemes.map((scheme) =>
        withAuthorization(valid.replace("Basic ", scheme), `with the scheme “${scheme.trim()}”`),
      ),
      ...foreign.map((authorization): Attempt => withAuthorization(authorization, "with the bearer token")),
      withEach(["x-authorization", "proxy-authorization"], valid),
    ]);
  },

  async "basic.refused.no-greeting"(client: TargetClient) {
    await expectNothingShown(client, admin);
    const [user, secret] = [client.target.user.name, client.target.user.password].map(encodeURIComponent);
    const query = loginQuery.replaceAll("USER", user ?? "").replaceAll("SECRET", secret ?? "");
    expectRejection(await client.send("GET", `${admin.path}?${query}`));
  },

  "basic.router": (client: TargetClient) => expectGuarded(client, admin),

  async "basic.realm"(client: TargetClient) {
    await expectEach(client, admin, [WITHOUT_CREDENTIALS], (response) => {
      const challenge = response.headers.get("www-authenticate") ?? "";
      const isValid = !/\bbasic\b/i.test(challenge) || /\brealm\s*=/i.test(challenge);
      response.expect(isValid, "a Basic challenge with a realm");
    });
  },
};

const expectRejected = (client: TargetClient, attempts: readonly Attempt[]): Promise<void> =>
  expectEach(client, admin, attempts, expectRejection);

function expectRejection(response: CapturedResponse): void {
  response.expect(response.status >= 300 && response.status < 500, "a 3xx or 4xx status");
}
