// The service on Hono, as its users would write it. The kit's system tests check that the kit accepts it.
import { createHash, timingSafeEqual } from "node:crypto";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { basicAuth } from "hono/basic-auth";

const hash = (text) => createHash("sha256").update(text).digest();
const clients = new Map([[hash(process.env.TOKEN).toString("hex"), { name: "alice" }]]);
const [username, password] = process.env.USER_PASSWORD.split(":");

const todos = new Map();
let nextId = 1;

const api = new Hono();

api.get("/todos", (c) => c.json([...todos.values()]));

api.post("/todos", async (c) => {
  const body = await c.req.json().catch(() => null);
  const title = body?.title;
  if (typeof title !== "string") return c.json({ errors: { title: ["must be a string"] } }, 422);
  // A blank title is reported as such, whatever its length.
  const message =
    title.trim() === "" ? "must not be empty" : title.length > 120 ? "must be at most 120 characters" : "";
  if (message !== "") return c.json({ errors: { title: [message] } }, 422);
  const todo = { id: nextId, title, done: false };
  nextId += 1;
  todos.set(String(todo.id), todo);
  return c.json(todo, 201);
});

api.use("/todos/:id", async (c, next) => {
  const id = c.req.param("id");
  if (!/^\d+$/.test(id) || BigInt(id) >= 2n ** 64n) return c.body(null, 400);
  const todo = todos.get(id);
  if (todo === undefined) return c.body(null, 404);
  c.set("todo", todo);
  await next();
});
api.get("/todos/:id", (c) => c.json(c.get("todo")));
api.patch("/todos/:id", async (c) => {
  const body = await c.req.json().catch(() => null);
  if (typeof body?.done !== "boolean") return c.json({ error: "done must be a boolean" }, 422);
  c.get("todo").done = body.done;
  return c.json(c.get("todo"));
});
api.delete("/todos/:id", (c) => {
  todos.delete(c.req.param("id"));
  return c.body(null, 204);
});

api.use("/whoami/*", async (c, next) => {
  const token = /^Bearer (\S+)$/i.exec(c.req.header("authorization") ?? "")?.[1];
  const client = token && clients.get(hash(token).toString("hex"));
  if (!client) return c.text("Unauthorized", 401, { "WWW-Authenticate": 'Bearer realm="api"' });
  c.set("client", client);
  await next();
});
api.get("/whoami", (c) => c.text(c.get("client").name));

const isEqual = (a, b) => timingSafeEqual(hash(a), hash(b));
const admin = new Hono();
admin.use(
  basicAuth({
    verifyUser: (name, given) => isEqual(name, username) && isEqual(given, password),
    realm: "admin",
  }),
);
admin.get("/", (c) => c.html(`<h1>Welcome, ${username}</h1>`));

const app = new Hono();
app.route("/api", api);
app.route("/admin/", admin);
serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => {
  process.stdout.write(`{"url":"http://127.0.0.1:${port}"}\n`);
});
