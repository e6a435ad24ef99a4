import { describe, expect, test } from "bun:test";
import { brotliDecompressSync, gunzipSync, gzipSync } from "node:zlib";
import { startService } from "../../test/service.ts";
import { openMemory } from "../storage/memory.ts";

/** What Chromium asks for when one goes to an address. */
const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
const AUTHORIZATION = `Basic ${btoa("admin:secret")}`;

function startWithKeys() {
  const store = openMemory();
  const checkUser = (user: string, password: string) => user === "admin" && password === "secret";
  return startService({ store, keys: store.keys, checkUser });
}

/** The names of the parts that a page asks for. */
const partsOf = (html: string): readonly string[] =>
  [...html.matchAll(/(?:href|src)="(\/assets\/[^"]+)"/g)].map(([, path = ""]) => path);

describe("/", () => {
  test.each([
    [BROWSER, "text/html; charset=utf-8"],
    ["TEXT/HTML", "text/html; charset=utf-8"],
    ["text/html;q=0.5, text/plain;q=0.4", "text/html; charset=utf-8"],
    ["text/html;q=0.4, text/plain;q=0.5", "text/plain; charset=utf-8"],
    ["text/html;q=0", "text/plain; charset=utf-8"],
    ["text/html, text/plain, application/json", "text/html; charset=utf-8"],
    ["text/htmlx", "text/plain; charset=utf-8"],
    ["*/*", "text/plain; charset=utf-8"],
    ["", "text/plain; charset=utf-8"],
  ])("answers Accept: %s with %s", async (accept, type) => {
    await using service = startService();
    const response = await service.send("GET", "/", { headers: { Accept: accept } });
    expect(response.headers.get("content-type")).toBe(type);
    const isPage = type.startsWith("text/html");
    expect(response.headers.get("vary")).toBe(isPage ? "Origin, Accept, Accept-Encoding" : "Origin, Accept");
    expect(response.headers.get("referrer-policy")).toBe(isPage ? "same-origin" : null);
  });

  test("lets a page run and load only what this server serves, and nothing inline", async () => {
    await using service = startService();
    const response = await service.send("GET", "/", { headers: { Accept: BROWSER } });
    expect(response.headers.get("content-security-policy")).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    );
    expect(await response.text()).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]* src=)|https?:/);
  });

  test("is asked again each time, and answers 304 as long as it is the same", async () => {
    await using service = startService();
    const first = await service.send("GET", "/", { headers: { Accept: BROWSER } });
    expect(first.headers.get("cache-control")).toBe("no-cache");
    const etag = first.headers.get("etag") ?? "";
    const headers = { Accept: BROWSER, "If-None-Match": etag };
    const same = await service.send("GET", "/", { headers });
    expect([same.status, same.headers.get("vary")]).toEqual([304, first.headers.get("vary")]);
    const others = { Accept: BROWSER, "If-None-Match": 'W/"another"' };
    expect((await service.send("GET", "/", { headers: others })).status).toBe(200);
  });

  test("comes with all its parts in at most 30 KB", async () => {
    await using service = startService();
    const html = await (await service.send("GET", "/", { headers: { Accept: BROWSER } })).text();
    let bytes = gzipSync(html).length;
    expect(partsOf(html).length).toBe(3);
    for (const path of partsOf(html)) {
      const part = await (await service.send("GET", path)).arrayBuffer();
      bytes += gzipSync(new Uint8Array(part)).length;
    }
    expect(bytes).toBeLessThan(30_000);
  });
});

describe("/assets/:name", () => {
  test("keeps for ever, in the coding that is asked for", async () => {
    await using service = startService();
    for (const page of ["/", "/docs"]) {
      const html = await (await service.send("GET", page, { headers: { Accept: BROWSER } })).text();
      for (const path of partsOf(html)) {
        // What the runtime's fetch would undo by itself.
        const get = (coding: string) =>
          fetch(service.url + path, { headers: { "Accept-Encoding": coding }, decompress: false });
        const plain = await get("identity");
        expect(plain.headers.get("content-encoding")).toBeNull();
        expect(plain.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
        expect(plain.headers.get("vary")).toContain("Accept-Encoding");
        const text = Buffer.from(await plain.arrayBuffer());
        expect(text.length).toBeGreaterThan(0);
        const br = await get("gzip, deflate, br;q=0.9");
        expect(br.headers.get("content-encoding")).toBe("br");
        expect(brotliDecompressSync(await br.arrayBuffer()).equals(text)).toBe(true);
        const gzip = await get("gzip, br;q=0");
        expect(gzip.headers.get("content-encoding")).toBe("gzip");
        expect(gunzipSync(await gzip.arrayBuffer()).equals(text)).toBe(true);
      }
    }
  });

  test("are nothing but the pages' parts", async () => {
    await using service = startService();
    for (const name of ["todos.ts", "constructor", "..%2Fpages.json", "swagger-ui.js.br"]) {
      expect((await service.send("GET", `/assets/${name}`)).status).toBe(404);
    }
  });
});

describe("/admin/keys", () => {
  test("is a page for a browser, behind the guard, that no cache keeps", async () => {
    await using service = startWithKeys();
    const stranger = await service.send("GET", "/admin/keys", { headers: { Accept: BROWSER } });
    expect(stranger.status).toBe(401);
    const headers = { Accept: BROWSER, Authorization: AUTHORIZATION };
    const page = await service.send("GET", "/admin/keys", { headers });
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(page.headers.get("cache-control")).toBe("no-store");
    expect(page.headers.get("content-security-policy")).toStartWith("default-src 'none'; script-src 'self';");
  });

  test("is JSON for all others", async () => {
    await using service = startWithKeys();
    for (const accept of ["*/*", "application/json"]) {
      const headers = { Accept: accept, Authorization: AUTHORIZATION };
      const keys = await service.send("GET", "/admin/keys", { headers });
      expect(keys.headers.get("content-type")).toBe("application/json");
      expect(await keys.json()).toEqual([]);
    }
  });
});

test("/admin/ greets in text, browsers too", async () => {
  await using service = startWithKeys();
  const headers = { Accept: BROWSER, Authorization: AUTHORIZATION };
  expect(await (await service.send("GET", "/admin/", { headers })).text()).toBe("Hello, admin!");
});

test("/docs loads nothing from elsewhere", async () => {
  await using service = startService();
  const response = await service.send("GET", "/docs");
  expect(response.headers.get("content-security-policy")).toBe(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  );
  expect(await response.text()).not.toMatch(/https?:|<style|\sstyle=/);
});
