import { type ClientHttp2Session, connect } from "node:http2";
import { listenTls, type TlsListenOptions } from "../src/http/listener/listen.ts";
import { parseCertificate } from "../src/http/listener/tls.ts";
import { createService, type ServiceOptions } from "../src/http/service.ts";
import { openMemory } from "../src/storage/memory/store.ts";
import { type CertificateOptions, makeCertificate } from "./certificate.ts";

export function newCertificate(options?: CertificateOptions) {
  const { cert, key } = makeCertificate(options);
  return parseCertificate(cert, key);
}

/** Starts a service over TLS on a free port of loopback. */
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
    /** Writes the pending summaries of the log. */
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
