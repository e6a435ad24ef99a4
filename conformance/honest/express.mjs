// The service on Express, as its users would write it. The kit's system tests check that the kit accepts it.
import { createHash, timingSafeEqual } from "node:crypto";
import express from "express";

const hash = (text) => createHash("sha256").update(text).digest();
const clients = [{ name: "alice", hash: hash(process.env.TOKEN) }];
const [user, password] = process.env.USER_PASSWORD.split(":");

const todos = new Map();
let lastId = 0n;

const toJson = ({ id, title, done }) => `{"id":${id},"title":${JSON.stringify(title)},"done":${done}}`;
const sendJson = (res, status, text) => res.status(status).type("json").send(text);

function validate(title) {
  const errors = [];
  if (title.trim() === "") errors.push({ field: "title", message: "must not be empty" });
  if (title.length > 120) errors.push({ field: "title", message: "must be at most 120 characters" });
  return errors;
}

const api = express.Router();
api.param("id", (req, res, next, id) => {
  if (!/^\d+$/.test(id) || BigInt(id) >= 2n ** 64n) return res.status(400).json({ error: "invalid id" });
  req.todo = todos.get(BigInt(id));
  if (req.todo === undefined) return res.status(404).json({ error: "no such to-do" });
  next();
});
api.get("/todos", (_req, res) => sendJson(res, 200, `[${[...todos.values()].map(toJson).join()}]`));
api.post("/todos", (req, res) => {
  const title = req.body?.title;
  if (typeof title !== "string") return res.status(400).json({ error: "title must be a string" });
  const errors = validate(title);
  if (errors.length > 0) return res.status(422).json({ errors });
  lastId += 1n;
  const todo = { id: lastId, title, done: false };
  todos.set(todo.id, todo);
  sendJson(res, 201, toJson(todo));
});
api.get("/todos/:id", (req, res) => sendJson(res, 200, toJson(req.todo)));
api.patch("/todos/:id", (req, res) => {
  if (typeof req.body?.done !== "boolean") return res.status(400).json({ error: "done must be a boolean" });
  req.todo.done = req.body.done;
  sendJson(res, 200, toJson(req.todo));
});
api.delete("/todos/:id", (req, res) => {
  todos.delete(req.todo.id);
  res.status(204).end();
});

const bearer = async (req, res, next) => {
  const token = /^Bearer (\S+)$/i.exec(req.get("authorization") ?? "")?.[1] ?? "";
  req.client = clients.find((client) => timingSafeEqual(client.hash, hash(token)));
  if (req.client !== undefined) return next();
  res.status(401).set("WWW-Authenticate", "Bearer").json({ error: "unauthorized" });
};
const basic = (req, res, next) => {
  const encoded = /^Basic (\S+)$/i.exec(req.get("authorization") ?? "")?.[1] ?? "";
  const given = Buffer.from(encoded, "base64").toString();
  req.user = user;
  if (timingSafeEqual(hash(given), hash(`${user}:${password}`))) return next();
  res.status(401).set("WWW-Authenticate", 'Basic realm="admin"').send("Unauthorized");
};

const app = express();
app.use("/api/whoami", bearer, (req, res) => res.type("text/plain").send(req.client.name));
app.use("/admin", basic, (req, res) => res.type("text/plain").send(`Hello, ${req.user}!`));
app.use(express.json());
app.use("/api", api);
app.use((error, _req, res, _next) => res.status(error.status ?? 500).json({ error: error.message }));

const server = app.listen(0, "127.0.0.1", () => {
  process.stdout.write(`{"url":"http://127.0.0.1:${server.address().port}"}\n`);
});
