/** elysia-equal.ts in the fastest form found: prepared headers, and a hook that runs after routing. */
import { Elysia, t } from "elysia";
import { corsHeaders, rejection, SECURITY_HEADERS } from "./equal.ts";
import { findClient, get, insert, port, version } from "./store.ts";

const json = (status: number) => ({
  status,
  headers: new Headers({ ...SECURITY_HEADERS, "content-type": "application/json" }),
});
const [OK, CREATED, NOT_FOUND, UNAUTHORIZED] = [json(200), json(201), json(404), json(401)];
UNAUTHORIZED.headers.set("www-authenticate", "Bearer");
const TEXT = {
  headers: new Headers({
    ...SECURITY_HEADERS,
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-store",
  }),
};

new Elysia()
  .onBeforeHandle(({ request, set }) => {
    const cors = corsHeaders(request);
    if (cors !== undefined) Object.assign(set.headers, cors);
    const rejected = rejection(request);
    if (rejected !== undefined) return new Response('{"title":"Rejected"}', json(rejected));
  })
  .post(
    "/api/todos",
    ({ body }) => {
      const todo = insert(body.title);
      CREATED.headers.set("location", `todos/${todo.id}`);
      CREATED.headers.set("todo-position", String(version()));
      return new Response(JSON.stringify(todo), CREATED);
    },
    { body: t.Object({ title: t.String({ minLength: 1, maxLength: 120, pattern: "\\S" }) }) },
  )
  .get(
    "/api/todos/:id",
    ({ params }) => {
      const todo = get(params.id);
      return todo === undefined
        ? new Response('{"title":"Not Found"}', NOT_FOUND)
        : new Response(JSON.stringify(todo), OK);
    },
    { params: t.Object({ id: t.Integer({ minimum: 0 }) }) },
  )
  .get("/api/whoami", ({ request }) => {
    const token = request.headers.get("authorization")?.match(/^Bearer (\S+)$/i)?.[1];
    const client = token && findClient(token);
    return client === undefined || client === ""
      ? new Response('{"title":"Unauthorized"}', UNAUTHORIZED)
      : new Response(client.name, TEXT);
  })
  .get("/ready", () => "ok")
  .listen({ port, hostname: "127.0.0.1" });
