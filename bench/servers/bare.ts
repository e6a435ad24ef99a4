/** Answers with the product's response (from RESPONSE_FILE), and a POST with the body it parsed. */
const response: { headers: [string, string][]; body: string } = await Bun.file(
  process.env.RESPONSE_FILE ?? "",
).json();
const headers = new Headers(response.headers);
const bytes = Buffer.from(response.body);
const body =
  process.env.BODY === "blob" ? new Blob([bytes], { type: headers.get("content-type") ?? "" }) : bytes;
const respond = () => new Response(body, { headers });

Bun.serve({
  port: Number(process.env.PORT),
  hostname: "127.0.0.1",
  development: false,
  routes: {
    "/api/todos/:id": respond,
    "/api/todos": {
      GET: respond,
      POST: async (request) => Response.json(await request.json(), { status: 201 }),
    },
  },
});
