import { hash } from "node:crypto";
import express from "express";
import { clients, get, insert, list, port } from "./store.ts";

const app = express();
app.use(express.json());

app.get("/api/todos", (_req, res) => {
  res.json(list());
});

app.post("/api/todos", (req, res) => {
  const title = req.body?.title;
  if (typeof title !== "string" || title.trim() === "" || title.length > 120) {
    res.status(422).json({ title: "Unprocessable Content" });
    return;
  }
  res.status(201).json(insert(title));
});

app.get("/api/todos/:id", (req, res) => {
  if (!/^\d+$/.test(req.params.id)) {
    res.status(400).json({ title: "Bad Request" });
    return;
  }
  const todo = get(Number(req.params.id));
  if (todo) res.json(todo);
  else res.status(404).json({ title: "Not Found" });
});

app.get("/api/whoami", (req, res) => {
  const token = req.get("authorization")?.match(/^Bearer (\S+)$/i)?.[1];
  const client = token && clients.get(hash("sha256", token));
  if (client) res.type("text/plain").send(client.name);
  else res.status(401).set("www-authenticate", "Bearer").json({ title: "Unauthorized" });
});

app.listen(port, "127.0.0.1");
