import { type ClientHttp2Session, connect } from "node:http2";
import { createKeyLookup } from "../src/credential/key.ts";
import { isCurrent } from "../src/credential/session.ts";
import { listen, listenTls, type TlsListenOptions } from "../src/http/listener/listen.ts";
import { parseCertificate } from "../src/http/listener/tls.ts";
import { createService, type ServiceOptions } from "../src/http/service.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import type { Store } from "../src/storage/store.ts";
import { type CertificateOptions, makeCertificate } from "./certificate.ts";
import { basic } from "./credentials.ts";
import { capturingLog, type LogLine } from "./log.ts";
import { validateResponse } from "./openapi.ts";
import { statusAndCode } from "./problem.ts";

export interface TestService extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly paths: readonly string[];
  /** Sends a request over a real socket, and validates the response against openapi.json. */
  readonly send: (method: string, path: string, init?: RequestInit) => Promise<Response>;
  /** Ends event streams and writes the pending summaries of the log. */
  readonly close: () => void;
  readonly drain: () => void;
  /** Shuts down. Returns the number of requests that were aborted. */
  readonly stop: () => Promise<number>;
  readonly sendJson: (method: string, path: string, body: unknown, init?: RequestInit) => Promise<Response>;
  /** Sends a request such as `GET /api/todos`. Returns its status and the code of a problem, such as `404 todo_not_found`. */
  readonly outcome: (line: string, init?: RequestInit, json?: unknown) => Promise<string>;
  /** The lines of the log, unless the options have another log. */
  readonly lines: LogLine[];
  /** All lines of the log as one text, to search for secrets. */
  readonly logText: () => string;
}

export function cookieOf({ headers }: Response): { readonly headers: { readonly Cookie: string } } {
  const [Cookie = ""] = (headers.get("set-cookie") ?? "").split(";");
  return { headers: { Cookie } };
}

/** Returns the path that a header such as `Location` names, relative to the address of its response. */
export const pathIn = (reference: string | null, { url }: Response): string | null =>
  reference && new URL(reference, url).href.slice(new URL(url).origin.length);

export function startService(options: Partial<ServiceOptions> = {}): TestService {
  const { log, lines, text } = capturingLog();
  const service = createService({ store: openMemory(), log, ...options });
  const listener = listen(service, { host: "127.0.0.1", port: 0 });

  const send: TestService["send"] = async (method, path, init = {}) => {
    const response = await fetch(listener.url + path, { redirect: "manual", ...init, method });
    await validateResponse(method, path, response);
    return response;
  };
  const sendJson: TestService["sendJson"] = (method, path, body, init = {}) =>
    send(method, path, {
      ...init,
      headers: { "Content-Type": "application/json", ...init.headers },
      body: JSON.stringify(body),
    });
  return {
    url: listener.url,
    port: Number(new URL(listener.url).port),
    paths: Object.keys(service.routes),
    send,
    close: service.close,
    drain: service.drain,
    stop: listener.stop,
    sendJson,
    outcome: async (line, init, json) => {
      const [method = "", path = ""] = line.split(" ");
      const response = await (json === undefined
        ? send(method, path, init)
        : sendJson(method, path, json, init));
      const outcome = method === "HEAD" ? `${response.status}` : (await statusAndCode(response)).join(" ");
      if (!response.bodyUsed) await response.body?.cancel();
      return outcome;
    },
    lines,
    logText: text,
    [Symbol.asyncDispose]: () => listener.abort(),
  };
}

export const ANN = { user: "ann", password: "pässword: s3cret" };
export const AS_ANN = basic(ANN.user, ANN.password);

export function startPrivate<S extends Store>(store: S, options: Partial<ServiceOptions> = {}) {
  const { keys = store.keys, storedEntry = () => "entry" } = options.credentials ?? {};
  const service = startService({
    store,
    ...options,
    credentials: {
      keys,
      storedEntry,
      lookupClient: createKeyLookup(keys, options.now ?? Date.now, (parent) =>
        isCurrent(parent, storedEntry),
      ),
      checkUser: (user, password) => user === ANN.user && password === ANN.password,
      ...options.credentials,
    },
    access: { privateMode: true, ...options.access },
  });
  return { ...service, store };
}

export function newCertificate(options?: CertificateOptions) {
  const { cert, key } = makeCertificate(options);
  return parseCertificate(cert, key);
}

export function startTls(
  options: Partial<ServiceOptions> = {},
  listenOptions: Partial<TlsListenOptions> = {},
  certificate = newCertificate(),
) {
  const service = createService({ store: openMemory(), ...options });
  const listener = listenTls(service, certificate, { host: "127.0.0.1", port: 0, ...listenOptions });
  const port = Number(new URL(listener.url).port);
  const sessions: ClientHttp2Session[] = [];
  return {
    ...listener,
    port,
    certificate,
    close: service.close,
    send: (version: "http1.1" | "http2", path: string, init: RequestInit = {}): Promise<Response> =>
      fetch(listener.url + path, {
        redirect: "manual",
        ...init,
        protocol: version,
        tls: { ca: certificate.cert },
      }),
    /** Opens an HTTP/2 session, which ends with the service. */
    session: (): ClientHttp2Session => {
      const session = connect(`https://localhost:${port}`, { ca: certificate.cert }).on("error", () => {});
      sessions.push(session);
      return session;
    },
    [Symbol.asyncDispose]: async () => {
      for (const session of sessions) session.destroy();
      await listener.abort();
    },
  };
}
