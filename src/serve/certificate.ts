import { describeFile, type Sourced } from "../config/setting-values.ts";
import { pollFiles, readBytes, watchFiles } from "../config/text-file.ts";
import { asUsageError } from "../config/usage-error.ts";
import type { TlsListener } from "../http/listener/listen.ts";
import { type Certificate, parseCertificate, validityError } from "../http/listener/tls.ts";
import type { Log } from "../http/observability/log.ts";
import type { Metrics } from "../http/observability/metrics.ts";

/** The paths of a certificate and its private key. */
type CertificateFiles = Readonly<Record<"cert" | "key", Sourced>>;

/** Reads a certificate and its key. Throws a UsageError if they cannot be used. */
export function readCertificate({ cert, key }: CertificateFiles): Certificate {
  const [certText, keyText] = [readFile(cert), readFile(key)];
  const subject = `${describeFile(cert)} and ${describeFile(key)}`;
  return asUsageError(subject, () => parseCertificate(certText, keyText));
}

/** Reads a PEM file. Its text outside of the blocks may have any encoding. */
const readFile = (file: Sourced): string =>
  asUsageError(describeFile(file), () => readBytes(file.value).toString("latin1"));

/**
 * Renews the certificate of a listener whenever its files change. If that fails, for example because only one of the files
 * has been written so far, logs the reason, keeps the previous certificate and tries again.
 */
export function watchCertificate(
  files: CertificateFiles,
  first: Certificate,
  { renew }: Pick<TlsListener, "renew">,
  log: Log,
  metrics: Metrics | undefined,
  poll = pollFiles,
): void {
  let current = first;
  warnUnlessValid(first, log);
  const check = async (): Promise<void> => {
    const next = readCertificate(files);
    if (next.cert === current.cert && next.key === current.key) return;
    await renew(next);
    current = next;
    log.info({ file: files.cert.value, notAfter: next.notAfter }, "certificate renewed");
    warnUnlessValid(next, log);
  };
  const onFailure = (reason: string): void =>
    log.warn({ reason }, "certificate not renewed: the previous one stays in use");
  const isRejected = watchFiles([files.cert.value, files.key.value], check, onFailure, poll);
  const expiry = "When the server's certificate expires, in seconds since 1970.";
  const rejected =
    "1 while the files of the certificate cannot be used and a previous certificate is in use, otherwise 0.";
  const expiresAt = () => current.notAfter.getTime() / 1000;
  metrics?.gauge("todo_certificate_expiry_timestamp_seconds", expiry, expiresAt);
  metrics?.gauge("todo_certificate_files_rejected", rejected, () => (isRejected() ? 1 : 0));
}

function warnUnlessValid(certificate: Certificate, log: Log): void {
  const reason = validityError(certificate, Date.now());
  if (reason === undefined) return;
  const { notBefore, notAfter } = certificate;
  log.warn({ reason, notBefore, notAfter }, "clients will reject the certificate");
}
