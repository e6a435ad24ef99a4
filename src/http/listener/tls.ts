import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";

/** A TLS server certificate with its private key. */
export interface Certificate {
  /** The certificate in PEM, followed by its intermediate certificates, without the root. */
  readonly cert: string;
  /** The private key in PEM. */
  readonly key: string;
  /** Start of the validity period. */
  readonly notBefore: Date;
  /** End of the validity period. */
  readonly notAfter: Date;
}

/**
 * Returns a certificate with its private key, both from PEM. Throws an Error that names the wrong part and the reason:
 * no PEM, an encrypted key, an RSA key of less than 2048 bits, or a key of another certificate. It does not check the
 * validity period.
 * @example
 * ```ts
 * import { readFile } from "node:fs/promises";
 * import { parseCertificate } from "todo-service/tls";
 *
 * const certificate = parseCertificate(await readFile("cert.pem", "utf8"), await readFile("key.pem", "utf8"));
 * console.log(`The certificate expires on ${certificate.notAfter.toISOString()}`);
 * ```
 */
export function parseCertificate(cert: string, key: string): Certificate {
  const chain = cert.match(BLOCK) ?? [];
  const certificate = parseChain(chain);
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = certificate.publicKey;
  if (type?.startsWith("rsa") && (details?.modulusLength ?? 0) < MIN_RSA_BITS)
    throw new Error(`the key is too short: RSA needs at least ${MIN_RSA_BITS} bits`);
  const keyBlocks = joinBlocks(key.match(KEY_BLOCK) ?? [key]);
  if (!certificate.checkPrivateKey(parseKey(keyBlocks)))
    throw new Error("the key does not match the certificate");
  const { validFromDate: notBefore, validToDate: notAfter } = certificate;
  return { cert: joinBlocks(chain), key: keyBlocks, notBefore, notAfter };
}

/** The minimum of RFC 9325 §4.5. With far shorter keys, every handshake fails. */
const MIN_RSA_BITS = 2048;

/**
 * Returns why a certificate is not valid at a time, or `undefined` if it is valid.
 * @param now the time in milliseconds since 1970
 * @example
 * ```ts
 * import { readFile } from "node:fs/promises";
 * import { parseCertificate, validityError } from "todo-service/tls";
 *
 * const certificate = parseCertificate(await readFile("cert.pem", "utf8"), await readFile("key.pem", "utf8"));
 * const problem = validityError(certificate, Date.now());
 * if (problem !== undefined) console.warn(`The certificate cannot be used: ${problem}`);
 * ```
 */
export function validityError({ notBefore, notAfter }: Certificate, now: number): string | undefined {
  if (now > notAfter.getTime()) return "it has expired";
  return now < notBefore.getTime() ? "it is not valid yet" : undefined;
}

const BLOCK = /-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs;
const KEY_BLOCK = /-----BEGIN ([A-Z ]+)-----.*?-----END \1-----/gs;

/** Returns PEM without the text around its blocks. The TLS library ignores a block behind a byte order mark. */
const joinBlocks = (blocks: readonly string[]): string => blocks.map((block) => `${block}\n`).join("");

function parseChain([first, ...others]: readonly string[]): X509Certificate {
  if (first === undefined) throw new Error("the certificate is not PEM (-----BEGIN CERTIFICATE-----)");
  try {
    for (const other of others) new X509Certificate(other);
    return new X509Certificate(first);
  } catch (cause) {
    throw new Error("the certificate cannot be read", { cause });
  }
}

function parseKey(text: string): KeyObject {
  if (!text.includes("PRIVATE KEY-----")) throw new Error("the key is not PEM (-----BEGIN PRIVATE KEY-----)");
  if (text.includes("ENCRYPTED")) throw new Error("the key is encrypted: store it without a passphrase");
  try {
    return createPrivateKey(text);
  } catch (cause) {
    throw new Error("the key cannot be read", { cause });
  }
}
