import { hash } from "node:crypto";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { clients, get, insert, list, port } from "./store.ts";

const app = new Hono();

app.get("/api/todos", (c) => c.json(list()));

app.post("/api/todos", async (c) => {
  const { title } = await c.req.json();
  if (typeof title !== "string" || title.trim() === "" || title.length > 120) {
    return c.json({ title: "Unprocessable Content" }, 422);
  }
  return c.json(insert(title), 201);
});

app.get("/api/todos/:id", (c) => {
  const id = c.req.param("id");
  if (!/^\d+$/.test(id)) return c.json({ title: "Bad Request" }, 400);
  const todo = get(Number(id));
  return todo ? c.json(todo) : c.json({ title: "Not Found" }, 404);
});

app.get("/api/whoami", (c) => {
  const token = c.req.header("authorization")?.match(/^Bearer (\S+)$/i)?.[1];
  const client = token && clients.get(hash("sha256", token));
  if (!client) return c.json({ title: "Unauthorized" }, 401, { "www-authenticate": "Bearer" });
  return c.text(client.name);
});

serve({ fetch: app.fetch, port, hostname: "127.0.0.1" });
