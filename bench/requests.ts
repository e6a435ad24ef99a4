/** The requests that servers are measured with. */

/** One request, which a load sends many times. */
export interface RequestSpec {
  readonly method: "GET" | "POST" | "PATCH";
  readonly path: string;
  /** Host and Content-Length are added. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** The body of every second request. wrk does not send it. */
  readonly alternateBody?: string;
  /** The status that each response must have. */
  readonly status: number;
}

export const TOKEN = "bench-token";
export const [ADMIN, PASSWORD] = ["admin", "bench-password"];

export const getOne: RequestSpec = { method: "GET", path: "/api/todos/1", headers: {}, status: 200 };
export const getList: RequestSpec = { ...getOne, path: "/api/todos" };
export const getFirstPage: RequestSpec = { ...getOne, path: "/api/todos?limit=100" };
export const getUnchangedList: RequestSpec = { ...getList, headers: { "If-None-Match": "*" }, status: 304 };
export const getMissing: RequestSpec = { ...getOne, path: "/api/todos/1000000000", status: 404 };
/** The page that a browser shows. */
export const getPage: RequestSpec = {
  ...getOne,
  path: "/",
  headers: { Accept: "text/html", "Accept-Encoding": "gzip" },
};
export const getOneWithToken: RequestSpec = { ...getOne, headers: { Authorization: `Bearer ${TOKEN}` } };
export const whoami: RequestSpec = {
  ...getOne,
  path: "/api/whoami",
  headers: { Authorization: `Bearer ${TOKEN}` },
};
export const signIn: RequestSpec = {
  ...getOne,
  path: "/admin/",
  headers: { Authorization: `Basic ${btoa(`${ADMIN}:${PASSWORD}`)}` },
};
export const post: RequestSpec = {
  method: "POST",
  path: "/api/todos",
  headers: { "Content-Type": "application/json" },
  body: '{"title":"buy milk and bread today"}',
  status: 201,
};
export const postBlankTitle: RequestSpec = { ...post, body: '{"title":" "}', status: 422 };
/** Every request changes the to-do, so that it is written. */
export const patch: RequestSpec = {
  ...post,
  method: "PATCH",
  path: "/api/todos/1",
  body: '{"done":true}',
  alternateBody: '{"done":false}',
  status: 200,
};

/** The eleven headers that Chromium sends with `fetch("/api/todos/1")`, besides Host and Connection. */
export const getOneFromBrowser: RequestSpec = {
  ...getOne,
  headers: {
    "sec-ch-ua-platform": '"Linux"',
    "User-Agent":
      "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36",
    "sec-ch-ua": '"Not:A-Brand";v="8", "Chromium";v="148"',
    "sec-ch-ua-mobile": "?0",
    Accept: "*/*",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Dest": "empty",
    Referer: "http://127.0.0.1:3000/",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-US,en;q=0.9",
  },
};
