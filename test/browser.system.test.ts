import { describe, expect, test } from "bun:test";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { createKey, createKeyLookup } from "../src/credential/key.ts";
import { isCurrent } from "../src/credential/session.ts";
import { createFixedUserCheck } from "../src/credential/user.ts";
import type { ServiceOptions } from "../src/http/service.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { startSite, whyNoBrowser } from "./chromium.ts";
import { capturingLog } from "./log.ts";
import { signIn, useBrowser } from "./page.ts";
import { startService } from "./service.ts";
import { skipFor } from "./skip.ts";

const FORGE = await Bun.file(fileURLToPath(new URL("csrf-attacks.js", import.meta.url))).text();
const TITLE = "mine alone";
const TODOS = [{ id: 1, title: TITLE, done: false }];
const PASSWORD = "s3cret";
const AS_ROOT = { headers: { Authorization: `Basic ${btoa(`root:${PASSWORD}`)}` } };

async function startGuarded(options: Partial<ServiceOptions> = {}) {
  const { log, lines } = capturingLog();
  const store = openMemory();
  const { keys } = store;
  const minted = await createKey(keys, "ci", undefined, Date.now());
  await store.insert(TITLE);
  const service = startService({
    store,
    log,
    accessLog: true,
    ...options,
    credentials: {
      keys,
      checkUser: createFixedUserCheck("root", PASSWORD),
      lookupClient: createKeyLookup(keys, Date.now, (parent) => isCurrent(parent, () => undefined)),
      ...options.credentials,
    },
  });
  return {
    ...service,
    keyId: minted?.key.id ?? "",
    token: minted?.token ?? "",
    asked: () =>
      new Set(
        lines
          .filter(({ message }) => message === "request")
          .map(({ fields: { method, path, status } }) => `${method} ${path} ${status}`),
      ),
    held: async () => [
      JSON.parse(await (await service.send("GET", "/api/todos", AS_ROOT)).text()),
      (await keys.list()).map(({ name }) => name),
    ],
  };
}

const UNTOUCHED = [TODOS, ["ci"]];

const isWritten = (line: string): boolean => /^(?:POST|PATCH|DELETE) .* 20/.test(line);

describe.skipIf(skipFor(whyNoBrowser))("in a real browser", () => {
  const browser = useBrowser();

  async function open(url: string): Promise<Page> {
    const page = await (await browser.newContext()).newPage();
    await page.goto(url);
    return page;
  }

  const forge = async (page: Page, target: object): Promise<string[]> => {
    await page.addScriptTag({ content: FORGE });
    return page.evaluate(`forge(${JSON.stringify(target)})`);
  };
  /** Shows a sandboxed frame, whose origin is null, and forges requests in it. Returns what it could read. */
  const forgeInFrame = async (page: Page, target: object, frame: string): Promise<string[]> => {
    await page.setContent(`<iframe sandbox="allow-scripts allow-forms" ${frame}></iframe>`);
    const child = page.frames().find((one) => one !== page.mainFrame());
    if (child === undefined) throw new Error("the page has no frame");
    await child.waitForLoadState();
    expect(await child.evaluate("origin")).toBe("null");
    return child.evaluate(`${FORGE}; forge(${JSON.stringify(target)})`);
  };
  const EMPTY_FRAME = 'srcdoc="<!doctype html><body>"';
  /** Submits forms as navigations, with which the browser sends what it knows. Returns the texts that it shows then. */
  const submitForms = async (page: Page, url: string): Promise<string[]> => {
    const from = page.url();
    const texts: string[] = [];
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      await page.setContent(
        `<form method=post enctype="${enctype}" action="${url}">
         <input name='{"name":"forged","title":"forged","x":"' value='"}'></form>`,
      );
      await Promise.all([page.waitForNavigation(), page.evaluate("document.forms[0].submit()")]);
      texts.push((await page.textContent("body")) ?? "");
      await page.goto(from);
    }
    return texts;
  };
  const todosOf = (origin: string) => ({
    collection: `${origin}/api/todos`,
    member: `${origin}/api/todos/1`,
    body: '{"title":"forged"}',
    credentials: "omit",
  });
  const keysOf = (origin: string, id: string) => ({
    collection: `${origin}/admin/keys`,
    member: `${origin}/admin/keys/${id}/rotate`,
    body: '{"name":"forged"}',
    credentials: "include",
  });

  /** Browsers send Fetch Metadata to loopback names. Over plain HTTP, they do not send it to any other name. */
  const HOSTS: [host: string, refusal: number][] = [
    ["127.0.0.1", 403],
    ["localhost", 403],
    ["todo.lan", 415],
  ];

  test.each(HOSTS)("a page of another site cannot write or read to-dos at %s", async (host, refusal) => {
    await using site = startSite();
    await using service = await startGuarded();
    const page = await open(site.at("elsewhere.example"));
    expect(await forge(page, todosOf(`http://${host}:${service.port}`))).toEqual([]);
    const asked = service.asked();
    // The requests reached the server, so it was not the browser alone that blocked them.
    expect(asked).toContain(`POST /api/todos ${refusal}`);
    expect(asked).toContain("OPTIONS /api/todos/1 204");
    expect([...asked].filter(isWritten)).toEqual([]);
    expect(await service.held()).toEqual(UNTOUCHED);
  });

  test("the forged requests succeed when the page's origin is listed", async () => {
    await using site = startSite();
    const origin = site.at("elsewhere.example");
    await using service = await startGuarded({ network: { corsOrigins: [origin] } });
    const page = await open(origin);
    const read = await forge(page, todosOf(`http://127.0.0.1:${service.port}`));
    expect(read.join()).toContain(TITLE);
    expect(service.asked()).toContain("POST /api/todos 201");
    expect(service.asked()).toContain("DELETE /api/todos/1 204");
  });

  test.each([
    ["a sandboxed frame", EMPTY_FRAME],
    ["a data: URL", `src="data:text/html;base64,${btoa("<!doctype html><body>")}"`],
  ])("%s, whose origin is null, writes nothing and reads nothing", async (_what, frame) => {
    await using site = startSite();
    await using service = await startGuarded({ network: { onLoopback: true } });
    const page = await open(site.at("localhost"));
    expect(await forgeInFrame(page, todosOf(service.url), frame)).toEqual([]);
    expect(service.asked()).toContain("POST /api/todos 403");
    expect(await service.held()).toEqual(UNTOUCHED);
  });

  describe("while the user is logged in below /admin", () => {
    /** Logs in as a user does, so that the browser sends the password by itself from then on. */
    async function logIn(service: { readonly port: number }, host: string): Promise<Page> {
      const page = await open(`http://root:${PASSWORD}@${host}:${service.port}/admin/`);
      expect(await page.textContent("body")).toBe("Hello, root!");
      await page.goto(`http://${host}:${service.port}/admin/keys`);
      await page.getByText("ci", { exact: true }).waitFor();
      return page;
    }

    test.each(["127.0.0.1", "localhost", "todo.lan"])("another origin creates no key at %s", async (host) => {
      for (const from of ["elsewhere.example", host]) {
        await using site = startSite();
        await using service = await startGuarded({ access: { allowBasicOverHttp: true } });
        const page = await logIn(service, host);
        await page.goto(site.at(from));
        const target = keysOf(`http://${host}:${service.port}`, service.keyId);
        expect(await forge(page, target)).toEqual([]);
        for (const text of await submitForms(page, target.collection))
          expect(text).toContain("cross_site_write");
        expect(service.asked()).toContain("POST /admin/keys 403");
        expect([...service.asked()].filter(isWritten)).toEqual([]);
        expect(await service.held()).toEqual(UNTOUCHED);
      }
    });

    test("the server's own page can create a key", async () => {
      await using service = await startGuarded();
      const page = await logIn(service, "127.0.0.1");
      const status = await page.evaluate(`fetch("/admin/keys", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: '{"name":"new"}',
      }).then(({ status }) => status)`);
      expect(status).toBe(201);
      expect(await service.held()).toEqual([TODOS, ["ci", "new"]]);
    });
  });

  test("an EventSource of a listed origin gets its position", async () => {
    await using site = startSite();
    await using service = await startGuarded({ network: { corsOrigins: [site.at("app.example")] } });
    const page = await open(site.at("app.example"));
    const opened = await page.evaluate(`new Promise((resolve, reject) => {
      const source = new EventSource("${service.url}/api/events");
      source.addEventListener("position", ({ lastEventId }) => resolve(lastEventId !== ""));
      source.onerror = () => reject(new Error("rejected"));
    })`);
    expect(opened).toBe(true);
  });

  describe("while the browser is signed in to a private service", () => {
    /** Starts a private service and signs in: with the form's request, or where that needs HTTPS, with the browser's dialog. */
    async function startSignedIn(host: string, kind: "user" | "token") {
      const service = await startGuarded({ access: { privateMode: true, allowBasicOverHttp: true } });
      const password = kind === "user" ? PASSWORD : service.token;
      const url = `http://${host}:${service.port}/`;
      const page = await open(
        host === "todo.lan" ? `http://root:${password}@${host}:${service.port}/api/todos` : url,
      );
      if (host !== "todo.lan")
        await signIn(page, kind === "user" ? { user: "root", password } : { token: password });
      await page.goto(url);
      await page.getByText(TITLE).waitFor();
      return { service, page, untouched: await service.held() };
    }

    test.each([
      ["127.0.0.1", "user"],
      ["localhost", "token"],
      ["todo.lan", "token"],
    ] as const)("a page of another site or port cannot read or write at %s as a %s", async (host, kind) => {
      for (const from of ["elsewhere.example", host]) {
        await using site = startSite();
        const { service, page, untouched } = await startSignedIn(host, kind);
        await using _service = service;
        const origin = `http://${host}:${service.port}`;
        await page.goto(site.at(from));
        const target = { ...todosOf(origin), credentials: "include" };
        expect(await forge(page, target)).toEqual([]);
        const opened = await page.evaluate(`new Promise((resolve) => {
          const source = new EventSource("${origin}/api/events", { withCredentials: true });
          source.onmessage = source.onopen = () => resolve("open");
          source.onerror = () => resolve("rejected");
        })`);
        expect(opened).toBe("rejected");
        // Pages of another origin can neither sign this browser in as somebody else nor out.
        const session = { ...target, collection: `${origin}/api/session`, member: `${origin}/api/session` };
        const signIns = { ...session, body: `{"token":"${service.token}"}` };
        expect(await forge(page, signIns)).toEqual([]);
        for (const url of [target.collection, target.member, session.collection]) {
          for (const text of await submitForms(page, url)) {
            expect(text).toMatch(/cross_site_write|unauthorized|https_required/);
            expect(text).not.toContain(TITLE);
          }
        }
        // The sign-in before.
        expect(
          [...service.asked()].filter(isWritten).filter((line) => line !== "POST /api/session 201"),
        ).toEqual([]);
        expect(await service.held()).toEqual(untouched);
      }
    });

    test("a navigation from another port to the API shows nothing", async () => {
      await using site = startSite();
      const { service, page } = await startSignedIn("127.0.0.1", "user");
      await using _service = service;
      await page.goto(`${service.url}/api/todos`);
      expect(await page.textContent("body")).toContain(TITLE);
      for (const from of ["elsewhere.example", "127.0.0.1"]) {
        await page.goto(site.at(from));
        await Promise.all([
          page.waitForNavigation(),
          page.evaluate(`location.assign("${service.url}/api/todos")`),
        ]);
        expect(await page.textContent("body")).toContain("unauthorized");
        // A link to the page itself opens the list, because its own request carries the cookie.
        await page.goto(site.at(from));
        await page.evaluate(`location.assign("${service.url}/")`);
        await page.getByText(TITLE).waitFor();
      }
    });
  });

  test.each([true, false])("DNS rebinding lets no page read or write (loopback: %p)", async (onLoopback) => {
    await using service = await startGuarded({ network: { onLoopback } });
    const own = `http://rebind.example:${service.port}`;
    const page = await open("about:blank");
    // Before the rebinding, the name leads to the attacker's server.
    await page.route(`${own}/`, (route) => route.fulfill({ contentType: "text/html", body: "<body>" }));
    await page.goto(`${own}/`);
    for (const target of [todosOf(own), keysOf(own, service.keyId)]) {
      const read = await forge(page, target);
      expect(read.length).toBeGreaterThan(20);
      expect(read.filter((answer) => !answer.includes("misdirected_host"))).toEqual([]);
      expect(read.join()).not.toContain(TITLE);
    }
    expect([...service.asked()].filter((line) => !line.endsWith(" 421"))).toEqual([]);
    expect(await service.held()).toEqual(UNTOUCHED);
  });
});
