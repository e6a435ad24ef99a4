import { hash } from "node:crypto";
import { Elysia, status, t } from "elysia";
import { clients, get, insert, list, port } from "./store.ts";

new Elysia()
  .get("/api/todos", () => list())
  .post("/api/todos", ({ body }) => status(201, insert(body.title)), {
    body: t.Object({ title: t.String({ minLength: 1, maxLength: 120, pattern: "\\S" }) }),
  })
  .get("/api/todos/:id", ({ params }) => get(params.id) ?? status(404, { title: "Not Found" }), {
    params: t.Object({ id: t.Integer({ minimum: 0 }) }),
  })
  .get("/api/whoami", ({ headers, set }) => {
    const token = headers.authorization?.match(/^Bearer (\S+)$/i)?.[1];
    const client = token && clients.get(hash("sha256", token));
    if (client) return client.name;
    set.headers["www-authenticate"] = "Bearer";
    return status(401, { title: "Unauthorized" });
  })
  .listen({ port, hostname: "127.0.0.1" });
