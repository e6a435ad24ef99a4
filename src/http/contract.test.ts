import { describe, expect, test } from "bun:test";
import contract from "../../openapi.json" with { type: "json" };
import { as, mint } from "../../test/credentials.ts";
import { ANN, AS_ANN, cookieOf, startPrivate } from "../../test/service.ts";
import { openMemory } from "../storage/memory/store.ts";

type Scheme = "none" | "bearer" | "basic" | "cookie";
type Security = readonly Readonly<Record<string, unknown>>[];
type PathItem = Readonly<Record<string, { readonly security?: Security }>>;

const paths: Readonly<Record<string, PathItem>> = contract.paths;
const operations = Object.entries(paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, { security = [] }]) => ({
    method: method.toUpperCase(),
    path,
    security,
  })),
);
/** Other methods, and unknown paths below `/api`, need credentials in private mode, too. */
const UNKNOWN = ["GET /api/nowhere", "POST /api/nowhere", "PUT /api/todos", "PATCH /api/todos/abc"].map(
  (line) => {
    const [method = "", path = ""] = line.split(" ");
    const cookie = path.endsWith("nowhere") ? [] : [{ cookie: [] }];
    return { method, path, security: [{}, { bearer: [] }, { basic: [] }, ...cookie] };
  },
);

async function start(privateMode: boolean) {
  const store = openMemory();
  await store.insert("x");
  const service = startPrivate(store, { access: { privateMode } });
  const key = await mint(store.keys, "phone");
  const session = privateMode ? await service.sendJson("POST", "/api/session", ANN) : undefined;
  const credentials: Readonly<Record<Scheme, { readonly headers: Record<string, string> }>> = {
    none: { headers: {} },
    bearer: as(`Bearer ${key.token}`),
    basic: as(AS_ANN),
    cookie: session === undefined ? { headers: {} } : cookieOf(session),
  };
  const pathOf = (template: string): string =>
    template.replace("{name}", "page.css").replace("{id}", template.includes("keys") ? key.key.id : "1");
  return { ...service, credentials, pathOf };
}

describe.each([
  ["in private mode", true],
  ["outside of private mode", false],
])("%s", (_mode, privateMode) => {
  test("each operation accepts the credentials that openapi.json lists, and no others", async () => {
    for (const { method, path, security } of [...operations, ...UNKNOWN]) {
      const isAbsent = !privateMode && path.startsWith("/api/session");
      const isOpen = isAbsent || security.length === 0 || (!privateMode && security.some(isEmpty));
      await using service = await start(privateMode);
      for (const [scheme, { headers }] of Object.entries(service.credentials)) {
        const response = await service.send(method, service.pathOf(path), { headers });
        await response.body?.cancel();
        const accepts = isOpen || security.some((one) => scheme in one);
        expect([method, path, scheme, response.status !== 401]).toEqual([method, path, scheme, accepts]);
        if (isAbsent) expect([method, path, response.status]).toEqual([method, path, 404]);
      }
    }
  });

  test("each path responds to HEAD as to GET, lists its methods, and rejects the others", async () => {
    await using service = await start(privateMode);
    for (const [template, item] of Object.entries(paths)) {
      if (!privateMode && /^\/api\/session|\/links$/.test(template)) continue;
      const path = service.pathOf(template);
      const init = template.startsWith("/admin") ? service.credentials.basic : service.credentials.bearer;
      const options = await service.send("OPTIONS", path, init);
      expect([path, options.status]).toEqual([path, 204]);
      expect(options.headers.get("accept-patch")).toBe("patch" in item ? "application/json" : null);
      for (const method of [
        "PUT",
        "PROPFIND",
        ...["POST", "PATCH", "DELETE"].filter((one) => !(one.toLowerCase() in item)),
      ]) {
        const response = await service.send(method, path, init);
        expect([method, path, response.status, response.headers.get("allow")]).toEqual([
          method,
          path,
          405,
          options.headers.get("allow"),
        ]);
      }
      if (!("get" in item)) continue;
      const [get, head] = [await service.send("GET", path, init), await service.send("HEAD", path, init)];
      const headersOf = ({ headers }: Response) =>
        [...headers].filter(([name]) => !["date", "connection"].includes(name)).sort();
      expect([path, head.status, headersOf(head)]).toEqual([path, get.status, headersOf(get)]);
      expect(await head.text()).toBe("");
      await get.body?.cancel();
    }
  });
});

const isEmpty = (one: object): boolean => Object.keys(one).length === 0;
