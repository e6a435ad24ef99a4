/**
 * GET /admin/ greets only a user with valid Basic credentials (sections 4 and 5). The status of a refusal is not shown:
 * it is no success and no fault of the server.
 */
import type { Cases } from "../case.ts";
import type { Answer, Service } from "../service.ts";

const path = "/admin/";

export const cases: Cases = {
  // The right pair first, before a server that counts failures has any to count.
  async "admin.200"(service) {
    (await enter(service)).expectStatus(200);
  },

  async "admin.greeting"(service) {
    const answer = await enter(service);
    const { name } = service.target.user;
    answer.expect(answer.ok && answer.text.includes(name), `a greeting of “${name}”`);
  },

  async "admin.text"(service) {
    const answer = await enter(service);
    answer.expect(/^(text\/.*)?$/i.test(answer.contentType), "a text content type");
    answer.expect(typeof answer.json !== "object", "text, not JSON");
  },

  async "basicuser.request"(service) {
    const greeting = await greetingOf(service);
    const pairs = Array.from({ length: 4 }, () => [enter(service), enterWithout(service)]);
    const answers = await Promise.all(pairs.flat());
    answers.forEach((answer, index) => {
      const known = index % 2 === 0;
      if (known) answer.expect(answer.ok && answer.text === greeting, "the greeting, amid unknown callers");
      else answer.expect(!answer.ok, "a refusal, amid known callers");
    });
  },

  async "basic.missing.refused"(service) {
    expectRefused(await enterWithout(service));
  },

  async "basic.malformed.refused"(service) {
    const malformed = [
      "Basic",
      "Basic !!!",
      `Basic ${btoa("no colon")}`,
      `Basic ${btoa(":")}`,
      `Basic ${btoa("nobody:x")}`,
    ];
    for (const authorization of malformed) {
      expectRefused(await enterAs(service, authorization, "with credentials that are none"));
    }
  },

  async "basic.password.refused"(service) {
    const { name, password } = service.target.user;
    const wrong: [string, string][] = [
      ["another password", "conformance-wrong-password"],
      ["no password", ""],
      ["the password less its last character", password.slice(0, -1)],
      ["the password less its first character", password.slice(1)],
    ];
    for (const [as, guess] of wrong.filter(([, guess]) => guess !== password)) {
      expectRefused(await enterAs(service, basic(name, guess), `with ${as}`));
    }
  },

  async "basic.user.refused"(service) {
    const { name, password } = service.target.user;
    for (const guess of ["conformance-nobody", "", `${name}x`]) {
      expectRefused(
        await enterAs(service, basic(guess, password), "with another user and the right password"),
      );
    }
  },

  async "basic.scheme.refused"(service) {
    const { name, password } = service.target.user;
    const right = basic(name, password);
    for (const scheme of ["Bearer ", "Digest ", ""]) {
      const as = `with the right pair under the scheme “${scheme.trim()}”`;
      expectRefused(await enterAs(service, right.replace("Basic ", scheme), as));
    }
  },

  async "basic.refused.no-greeting"(service) {
    const greeting = await greetingOf(service);
    const { name } = service.target.user;
    const refused = [
      await enterWithout(service),
      await enterAs(service, basic(name, "conformance-wrong-password"), "with another password"),
      ...(await Promise.all(spellings.map((spelling) => service.raw("GET", spelling)))),
    ];
    for (const answer of refused) answer.expect(!answer.text.includes(greeting), "no greeting");
  },

  async "basic.router"(service) {
    for (const method of ["HEAD", "POST", "PUT", "PATCH", "DELETE"]) {
      const answer = await service.send(method, path, { as: "without credentials" });
      answer.expect(!answer.ok, "no success");
    }
    for (const below of ["no-such", "no/such"]) {
      const answer = await service.send("GET", path + below, { as: "without credentials" });
      answer.expect(!answer.ok, "no success");
    }
  },

  async "basic.realm"(service) {
    const answer = await enterWithout(service);
    const challenge = answer.headers.get("www-authenticate") ?? "";
    answer.expect(
      !/\bbasic\b/i.test(challenge) || /\brealm\s*=/i.test(challenge),
      "a Basic challenge with a realm",
    );
  },
};

/** Paths that a careless router or guard may read as /admin/. */
const spellings = ["/admin", "//admin/", "/%61dmin/", "/x/../admin/", "/admin/.", "/admin/x/..", "/ADMIN/"];

function basic(name: string, password: string): string {
  return `Basic ${Buffer.from(`${name}:${password}`).toString("base64")}`;
}

function enter(service: Service): Promise<Answer> {
  const { name, password } = service.target.user;
  return enterAs(service, basic(name, password), "with the right credentials");
}

async function greetingOf(service: Service): Promise<string> {
  const answer = await enter(service);
  answer.expect(answer.ok && answer.text !== "", "a greeting");
  return answer.text;
}

function enterWithout(service: Service): Promise<Answer> {
  return service.send("GET", path, { as: "without credentials" });
}

function enterAs(service: Service, authorization: string, as: string): Promise<Answer> {
  return service.send("GET", path, { headers: { authorization }, as });
}

function expectRefused(answer: Answer): void {
  answer.expect(answer.status >= 300 && answer.status < 500, "a refusal");
}
