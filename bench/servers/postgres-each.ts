/** The product's own function for a batch of writes, called for each request by itself: a transaction each. */
const { PORT, POSTGRES = "" } = process.env;
const sql = new Bun.SQL(POSTGRES, { max: 16, bigint: true });

Bun.serve({
  port: Number(PORT),
  hostname: "127.0.0.1",
  development: false,
  routes: {
    "/livez": new Response("ok\n"),
    "/api/todos": async (request) => {
      const { title } = await request.json();
      const [row] = await sql.unsafe(
        "SELECT created FROM todo_service.write('', $1, $2, $3, $4, $5, $6, NULL, NULL, NULL)",
        [Number.MAX_SAFE_INTEGER, 10_000_000, 10_000, JSON.stringify(title), "", ""],
      );
      return Response.json({ id: Number(row.created), title, done: false }, { status: 201 });
    },
  },
});
