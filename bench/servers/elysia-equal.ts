/** elysia.ts with the product's response headers and checks, as Elysia's guide writes them. */
import { Elysia, status, t } from "elysia";
import { corsHeaders, rejection, SECURITY_HEADERS } from "./equal.ts";
import { findClient, get, insert, list, port, version } from "./store.ts";

new Elysia()
  .headers(SECURITY_HEADERS)
  .onRequest(({ request, set }) => {
    const cors = corsHeaders(request);
    if (cors !== undefined) Object.assign(set.headers, cors);
    const rejected = rejection(request);
    if (rejected !== undefined) return status(rejected, { title: "Rejected" });
  })
  .get("/api/todos", ({ request, set }) => {
    const etag = `"${version()}"`;
    set.headers.etag = etag;
    set.headers["todo-position"] = String(version());
    set.headers["cache-control"] = "no-cache";
    if (request.headers.get("if-none-match") === etag) return status(304);
    set.headers["content-type"] = "application/json";
    return list();
  })
  .post(
    "/api/todos",
    ({ body, set }) => {
      const todo = insert(body.title);
      set.headers.location = `todos/${todo.id}`;
      set.headers["todo-position"] = String(version());
      set.headers["content-type"] = "application/json";
      return status(201, todo);
    },
    { body: t.Object({ title: t.String({ minLength: 1, maxLength: 120, pattern: "\\S" }) }) },
  )
  .get(
    "/api/todos/:id",
    ({ params, set }) => {
      set.headers["content-type"] = "application/json";
      return get(params.id) ?? status(404, { title: "Not Found" });
    },
    { params: t.Object({ id: t.Integer({ minimum: 0 }) }) },
  )
  .get("/api/whoami", ({ headers, set }) => {
    set.headers["cache-control"] = "no-store";
    const token = headers.authorization?.match(/^Bearer (\S+)$/i)?.[1];
    const client = token && findClient(token);
    if (client) {
      set.headers["content-type"] = "text/plain; charset=utf-8";
      return client.name;
    }
    set.headers["www-authenticate"] = "Bearer";
    return status(401, { title: "Unauthorized" });
  })
  .listen({ port, hostname: "127.0.0.1" });
