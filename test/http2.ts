import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";

export const POST_TODO = { ":method": "POST", ":path": "/api/todos", "content-type": "application/json" };

export interface Streamed {
  readonly status: number | undefined;
  readonly text: string;
  readonly isWhole: boolean;
  readonly rst: number | undefined;
}

/** Sends one request on an HTTP/2 session. Resolves when its stream is closed. */
export function ask(
  session: ClientHttp2Session,
  headers: Record<string, string>,
  body?: string,
): Promise<Streamed> {
  const stream = session.request(headers, { endStream: body === undefined });
  const answer = answerOf(stream);
  if (body !== undefined) stream.end(body);
  return answer;
}

export function answerOf(stream: ClientHttp2Stream): Promise<Streamed> {
  const { promise, resolve } = Promise.withResolvers<Streamed>();
  let [status, text, isWhole]: [number | undefined, string, boolean] = [undefined, "", false];
  stream.setEncoding("utf8");
  stream.on("response", (head) => {
    status = head[":status"];
  });
  stream.on("data", (chunk: string) => {
    text += chunk;
  });
  stream.on("end", () => {
    isWhole = true;
  });
  stream.on("error", () => {});
  stream.on("close", () => resolve({ status, text, isWhole, rst: stream.rstCode }));
  return promise;
}

/** Resolves when every response has begun. The session needs `initialWindowSize: 0`, so that no body arrives. */
export async function requestUnread(
  session: ClientHttp2Session,
  paths: readonly string[],
  headers = {},
): Promise<void> {
  await Promise.all(
    paths.map((path) => {
      const stream = session.request({ ":path": path, ...headers });
      return new Promise<void>((resolve, reject) => {
        stream.on("response", ({ ":status": status }) =>
          status === 200 ? resolve() : reject(new Error(`${path}: ${status}`)),
        );
        stream.on("error", reject);
      });
    }),
  );
}
