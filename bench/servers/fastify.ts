import { hash } from "node:crypto";
import fastify from "fastify";
import { clients, get, insert, list, port } from "./store.ts";

const todo = {
  type: "object",
  required: ["id", "title", "done"],
  properties: { id: { type: "integer" }, title: { type: "string" }, done: { type: "boolean" } },
};
const newTodo = {
  type: "object",
  required: ["title"],
  properties: { title: { type: "string", minLength: 1, maxLength: 120, pattern: "\\S" } },
};
const byId = { type: "object", required: ["id"], properties: { id: { type: "integer", minimum: 0 } } };

const app = fastify();

const listSchema =
  process.env.LIST_SCHEMA === "off" ? {} : { response: { 200: { type: "array", items: todo } } };
app.get("/api/todos", { schema: listSchema }, async () => list());

app.post<{ Body: { title: string } }>(
  "/api/todos",
  { schema: { body: newTodo, response: { 201: todo } } },
  async (request, reply) => reply.code(201).send(insert(request.body.title)),
);

app.get<{ Params: { id: number } }>(
  "/api/todos/:id",
  { schema: { params: byId, response: { 200: todo } } },
  async (request, reply) => get(request.params.id) ?? reply.code(404).send({ title: "Not Found" }),
);

app.get("/api/whoami", async (request, reply) => {
  const token = request.headers.authorization?.match(/^Bearer (\S+)$/i)?.[1];
  const client = token && clients.get(hash("sha256", token));
  if (!client) return reply.code(401).header("www-authenticate", "Bearer").send({ title: "Unauthorized" });
  return reply.type("text/plain; charset=utf-8").send(client.name);
});

await app.listen({ port, host: "127.0.0.1" });
