import { expect, test } from "bun:test";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { as, basic } from "../../../test/credentials.ts";
import { sendRaw, statusOf } from "../../../test/raw-http.ts";
import { startService, type TestService } from "../../../test/service.ts";
import { openMemory } from "../../storage/memory/store.ts";

/** The Accept header that Chromium sends for a page. */
const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
const ADMIN = basic("admin", "secret");
const OPENED = { headers: { Accept: BROWSER } };

const PAGE_CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'; img-src 'self'; worker-src 'self'; form-action 'self'; require-trusted-types-for 'script'; trusted-types service-worker";

/** Expects that a page contains nothing inline, and loads only assets that everyone can load. */
async function expectOnlyAssets(service: TestService, html: string): Promise<void> {
  expect(html).not.toMatch(
    /<style|\sstyle=|\son\w+=|<script(?![^>]* src=)|="https?:|(?:src|<link[^>]*href)="(?!\/assets\/)/,
  );
  expect(partsOf(html).length).toBeGreaterThan(1);
  for (const path of partsOf(html)) expect((await service.send("GET", path)).status).toBe(200);
}

function startWithKeys() {
  const store = openMemory();
  const checkUser = (user: string, password: string) => user === "admin" && password === "secret";
  return startService({ store, credentials: { keys: store.keys, checkUser } });
}

const htmlOf = async ({ send }: TestService, path = "/"): Promise<string> =>
  (await send("GET", path, OPENED)).text();

const partsOf = (html: string): readonly string[] => [
  ...new Set([...html.matchAll(/="(\/assets\/[^"]+)"/g)].map(([, path = ""]) => path)),
];

test.each<[isPage: boolean, accepted: readonly string[]]>([
  [true, [BROWSER, "TEXT/HTML", "text/html;q=0.5, text/plain;q=0.4"]],
  [true, ["application/json, text/plain, text/html"]],
  [true, ["text/html, text/plain;q=0.5, text/html;level=1;q=0.1"]],
  [false, ["text/html;q=0.4, text/plain;q=0.5", "text/html;q=0", "text/htmlx", "*/*", ""]],
])("/ is a page: %p, for Accept %j", async (isPage, accepted) => {
  await using service = startService();
  for (const Accept of accepted) {
    const { headers } = await service.send("GET", "/", { headers: { Accept } });
    const names = ["content-type", "vary", "referrer-policy"];
    expect([Accept, ...names.map((name) => headers.get(name))]).toEqual(
      isPage
        ? [Accept, "text/html; charset=utf-8", "Origin, Accept, Accept-Encoding", "same-origin"]
        : [Accept, "text/plain; charset=utf-8", "Origin, Accept", null],
    );
  }
});

test.each(["/", "/docs"])("the CSP of %s allows only the server's files and nothing inline", async (path) => {
  await using service = startService();
  const response = await service.send("GET", path, OPENED);
  expect(response.headers.get("content-security-policy")).toBe(PAGE_CSP);
  await expectOnlyAssets(service, await response.text());
});

test("/ is revalidated each time, with 304 while it is unchanged", async () => {
  await using service = startService();
  const first = await service.send("GET", "/", OPENED);
  expect(first.headers.get("cache-control")).toBe("no-cache");
  const etag = first.headers.get("etag") ?? "";
  const headers = { Accept: BROWSER, "If-None-Match": etag };
  const same = await service.send("GET", "/", { headers });
  expect([same.status, same.headers.get("vary")]).toEqual([304, first.headers.get("vary")]);
});

test("/ has at most 30 KB with all its assets, as browsers receive them", async () => {
  await using service = startService();
  const html = await htmlOf(service);
  expect(partsOf(html).length).toBe(5);
  const headers = { Accept: BROWSER, "Accept-Encoding": "gzip, br" };
  let bytes = 0;
  for (const path of ["/", ...partsOf(html)])
    bytes += (await (await fetch(service.url + path, { headers, decompress: false })).arrayBuffer())
      .byteLength;
  expect(bytes).toBeLessThan(30_000);
});

test("/assets/:name is immutable and uses the requested coding", async () => {
  await using service = startService();
  const paths = new Set([...partsOf(await htmlOf(service)), ...partsOf(await htmlOf(service, "/docs"))]);
  for (const path of paths) {
    // fetch would decode the body by itself.
    const get = async (accepted: string) => {
      const headers = { "Accept-Encoding": accepted };
      const response = await fetch(service.url + path, { headers, decompress: false });
      return { coding: response.headers.get("content-encoding"), response, body: await response.bytes() };
    };
    const [plain, br, gzip] = [
      await get("identity"),
      await get("gzip;q=0.9, deflate, br"),
      await get("gzip, br;q=0"),
    ];
    expect([plain.coding, br.coding, gzip.coding]).toEqual([null, "br", "gzip"]);
    expect(plain.response.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(plain.response.headers.get("vary")).toContain("Accept-Encoding");
    expect(plain.body.length).toBeGreaterThan(0);
    expect(brotliDecompressSync(br.body).equals(plain.body)).toBe(true);
    expect(gunzipSync(gzip.body).equals(plain.body)).toBe(true);
  }
});

test.each<[coding: string | null, accepted: readonly string[]]>([
  ["br", ["br", "gzip, br", "*", "identity;q=0, br;q=0.2"]],
  ["gzip", ["gzip;q=0.9, br;q=0.1", "gzip;q=0.001, br;q=0", "GZIP; Q=1.0", "identity;q=0.1, gzip;q=0.5"]],
  ["gzip", ["br;q=0, *", "*;q=0, gzip;q=0.5", "br;q=x, gzip;q=0.5"]],
  [null, ["identity, gzip;q=0.5, br;q=0.5", "*;q=0.1, identity", "*;q=0", "deflate, zstd", ""]],
  [null, ["br;q=2", "br;q=0.0001"]],
])("/assets/:name uses the coding %p for Accept-Encoding %j", async (coding, accepted) => {
  await using service = startService();
  const [part] = partsOf(await htmlOf(service));
  for (const one of accepted) {
    const init = { headers: { "Accept-Encoding": one }, decompress: false };
    const { headers } = await fetch(service.url + part, init);
    expect([one, headers.get("content-encoding")]).toEqual([one, coding]);
  }
});

test("/assets/:name responds with 404 to unknown names", async () => {
  await using service = startService();
  for (const name of ["todos.ts", "constructor", "..%2Fpages.json", "pages.json"]) {
    expect((await service.send("GET", `/assets/${name}`)).status).toBe(404);
  }
});

test("/service-worker.js is revalidated each time and may only send requests to this server", async () => {
  await using service = startService();
  const first = await service.send("GET", "/service-worker.js");
  expect(first.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
  expect(first.headers.get("cache-control")).toBe("no-cache");
  expect(first.headers.get("content-security-policy")).toBe(
    "default-src 'none'; connect-src 'self'; frame-ancestors 'none'",
  );
  const headers = { "If-None-Match": first.headers.get("etag") ?? "" };
  expect((await service.send("GET", "/service-worker.js", { headers })).status).toBe(304);
});

test("/service-worker.js lists the assets of the page to cache", async () => {
  await using service = startService();
  const html = await htmlOf(service);
  const script = await (await service.send("GET", "/service-worker.js")).text();
  const kept = [...script.matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path = ""]) => path);
  const parts = partsOf(html).filter((path) => /\.(?:svg|css|js)$/.test(path));
  expect(kept.toSorted()).toEqual([...parts].toSorted());
});

interface Manifest {
  readonly start_url: string;
  readonly icons: readonly { readonly src: string; readonly sizes: string }[];
}

test("the manifest of the list names icons that exist", async () => {
  await using service = startService();
  for (const page of ["/", "/docs"]) {
    const html = await htmlOf(service, page);
    const path = partsOf(html).find((part) => part.endsWith(".webmanifest")) ?? "";
    const response = await service.send("GET", path);
    expect(response.headers.get("content-type")).toBe("application/manifest+json");
    const { start_url: startUrl, icons }: Manifest = JSON.parse(await response.text());
    expect(startUrl).toBe("/");
    expect(icons).toHaveLength(3);
    for (const { src, sizes } of icons) {
      const icon = await service.send("GET", src);
      expect(icon.headers.get("content-type")).toBe("image/png");
      const header = Buffer.from(await icon.arrayBuffer());
      // The width and the height in the header of a PNG file.
      expect(`${header.readUInt32BE(16)}x${header.readUInt32BE(20)}`).toBe(sizes);
    }
  }
});

test("/admin/keys is a guarded page for browsers, with Cache-Control: no-store, and JSON for other clients", async () => {
  await using service = startWithKeys();
  expect((await service.send("GET", "/admin/keys", OPENED)).status).toBe(401);
  const page = await service.send("GET", "/admin/keys", as(ADMIN, { Accept: BROWSER }));
  expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
  expect(page.headers.get("cache-control")).toBe("no-store");
  expect(page.headers.get("content-security-policy")).toBe(PAGE_CSP);
  await expectOnlyAssets(service, await page.text());
  for (const accept of ["*/*", "application/json"]) {
    const keys = await service.send("GET", "/admin/keys", as(ADMIN, { Accept: accept }));
    expect([keys.headers.get("content-type"), await keys.text()]).toEqual(["application/json", "[]"]);
  }
});

test.each([
  ["/nothing", 404, "Page not found"],
  ["/apis", 404, "Page not found"],
  ["/admin/keys", 401, "Sign in"],
  ["/admin/", 401, "Sign in"],
  ["/admin/nothing", 401, "Sign in"],
])("an error is a page if a browser opens %s", async (path, status, title) => {
  await using service = startWithKeys();
  const response = await service.send("GET", path, OPENED);
  expect(response.status).toBe(status);
  expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(response.headers.get("vary")).toBe("Origin, Accept");
  const html = await response.text();
  expect(html).toContain(`<title>${title} · To-do service</title>`);
  await expectOnlyAssets(service, html);
  expect(response.headers.get("content-security-policy")).toBe(PAGE_CSP);
  const plain = await service.send("GET", path, { headers: { Accept: "application/json" } });
  const challenge = plain.headers.get("www-authenticate");
  expect(response.headers.get("www-authenticate")).toBe(challenge);
  const head = await service.send("HEAD", path, OPENED);
  expect([head.status, head.headers.get("content-type")]).toEqual([status, "text/html; charset=utf-8"]);
  expect(await head.text()).toBe("");
  if (status === 404) return;
  const signedIn = await service.send("GET", path, as(ADMIN, { Accept: BROWSER }));
  const texts: Record<string, string> = { "/admin/": "Hello, admin!", "/admin/nothing": "Page not found" };
  expect(await signedIn.text()).toContain(texts[path] ?? "<html");
});

test.each<[accept: string, status: number, lines: readonly string[]]>([
  ["application/json", 404, ["GET /nothing"]],
  ["", 404, ["GET /nothing"]],
  ["application/json", 401, ["GET /admin/keys"]],
  [BROWSER, 404, ["POST /nothing", "GET /api/nothing"]],
  [BROWSER, 400, ["GET /api/todos/x"]],
  [BROWSER, 401, ["GET /api/whoami", "POST /admin/keys"]],
  [BROWSER, 405, ["PATCH /"]],
])("an error is JSON with Accept: %s and the status %d for %j", async (accept, status, lines) => {
  await using service = startWithKeys();
  for (const line of lines) {
    const [method = "", path = ""] = line.split(" ");
    const response = await service.send(method, path, { headers: { Accept: accept } });
    const type = response.headers.get("content-type");
    expect([line, response.status, type]).toEqual([line, status, "application/problem+json"]);
    expect(response.headers.get("vary")).toBe("Origin");
  }
});

test("an error is JSON if a browser opens an address whose error has no page", async () => {
  await using service = startService();
  service.drain();
  expect(await service.outcome("GET /readyz", OPENED)).toBe("503 stopping");
});

test("an error is a page without assets if a browser opens a name that is not the server's", async () => {
  await using service = startService({ network: { onLoopback: true } });
  for (const [path, accept, type] of [
    ["/", BROWSER, "text/html; charset=utf-8"],
    ["/api/todos", BROWSER, "application/problem+json"],
    ["/", "application/json", "application/problem+json"],
  ] as const) {
    const headers = { Accept: accept, Host: "todo.example" };
    const response = await service.send("GET", path, { headers });
    expect([response.status, response.headers.get("content-type")]).toEqual([421, type]);
    const body = await response.text();
    expect(body).toContain("TODO_ALLOWED_HOSTS");
    // The server answers no other request under this name.
    expect(body).not.toMatch(/<link|<img|<a /);
  }
});

test("/favicon.ico is an icon that caches store for a day", async () => {
  await using service = startService();
  const response = await service.send("GET", "/favicon.ico");
  expect([response.status, response.headers.get("content-type")]).toEqual([200, "image/vnd.microsoft.icon"]);
  expect(response.headers.get("cache-control")).toBe("public, max-age=86400");
  // The header of an icon file: reserved, type 1, and one image.
  expect([...(await response.bytes()).subarray(0, 6)]).toEqual([0, 0, 1, 0, 1, 0]);
});

test.each(["a:99999", "a b", "", "[", "%zz"])("the Host %p causes no 500 on an error page", async (host) => {
  await using service = startWithKeys();
  for (const path of ["/nothing", "/admin/"]) {
    const head = [`GET ${path} HTTP/1.1`, `Host: ${host}`, `Accept: ${BROWSER}`, "Connection: close"];
    const { text } = await sendRaw(service.port, `${head.join("\r\n")}\r\n\r\n`);
    expect([400, 401, 404, 421]).toContain(statusOf(text) ?? 0);
  }
});
