import type { TlsListener } from "../http/listen.ts";
import type { Log } from "../http/log.ts";
import { type Certificate, parseCertificate, whyInvalidAt } from "../http/tls.ts";
import { UsageError } from "./config.ts";
import { lookAgain, readText } from "./text-file.ts";

/** The paths of a certificate and of its key. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
}

/** Reads a certificate and its key; throws a UsageError for what cannot be used. */
export function readCertificate({ cert, key }: CertificateFiles): Certificate {
  const [certText, keyText] = [readNamed("TODO_TLS_CERT", cert), readNamed("TODO_TLS_KEY", key)];
  try {
    return parseCertificate(certText, keyText);
  } catch (error) {
    const reason = error instanceof Error ? error.message : error;
    throw new UsageError(`TODO_TLS_CERT "${cert}" and TODO_TLS_KEY "${key}": ${reason}`);
  }
}

function readNamed(variable: string, path: string): string {
  try {
    return readText(path);
  } catch (error) {
    throw new UsageError(`${variable} "${path}": ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * Renews a listener's certificate whenever its files change. While they cannot be used, as when only one of the two
 * has been written yet, the certificate from before stays in force, and the log says why.
 */
export function watchCertificate(
  files: CertificateFiles,
  first: Certificate,
  { renew }: TlsListener,
  log: Log,
): void {
  let current = first;
  let reason: string | undefined;
  warnUnlessValid(first, log);
  const look = (): void => {
    try {
      const next = readCertificate(files);
      reason = undefined;
      if (next.cert === current.cert && next.key === current.key) return;
      renew(next);
      current = next;
      log.info({ file: files.cert, notAfter: next.notAfter }, "certificate renewed");
      warnUnlessValid(next, log);
    } catch (error) {
      const said = reason;
      reason = error instanceof Error ? error.message : String(error);
      if (reason === said) return;
      log.warn({ reason }, "certificate not renewed: the one from before stays in force");
    }
  };
  lookAgain([files.cert, files.key], look);
}

function warnUnlessValid(certificate: Certificate, log: Log): void {
  const reason = whyInvalidAt(certificate, Date.now());
  if (reason === undefined) return;
  const { notBefore, notAfter } = certificate;
  log.warn({ reason, notBefore, notAfter }, "clients will refuse the certificate");
}
