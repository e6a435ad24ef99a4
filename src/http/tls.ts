import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";

/** A certificate and what goes with it, to be shown to TLS clients. */
export interface Certificate {
  /** PEM: the certificate, then those that lead from it to an authority, without the authority's own. */
  readonly cert: string;
  /** PEM: its private key. */
  readonly key: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** Reads a certificate and its key; throws an Error that says which of the two is wrong, and why. */
export function parseCertificate(cert: string, key: string): Certificate {
  const certificate = parsePem(cert);
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = certificate.publicKey;
  if (type?.startsWith("rsa") && (details?.modulusLength ?? 0) < LEAST_RSA_BITS)
    throw new Error(`the key is too short: RSA needs ${LEAST_RSA_BITS} bits`);
  if (!certificate.checkPrivateKey(parseKey(key))) throw new Error("the key is not the certificate's");
  const { validFromDate: notBefore, validToDate: notAfter } = certificate;
  return { cert, key, notBefore, notAfter };
}

/** RFC 9325 §4.5; with far fewer, no handshake succeeds. */
const LEAST_RSA_BITS = 2048;

/** What is wrong with a certificate at a moment, in milliseconds since 1970; undefined when nothing is. */
export function whyInvalidAt({ notBefore, notAfter }: Certificate, now: number): string | undefined {
  if (now > notAfter.getTime()) return "it has expired";
  return now < notBefore.getTime() ? "it is not valid yet" : undefined;
}

const BLOCK = /-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs;

function parsePem(text: string): X509Certificate {
  const [first, ...others] = text.match(BLOCK) ?? [];
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
  if (text.includes("ENCRYPTED")) throw new Error("the key needs a passphrase: store it without one");
  try {
    return createPrivateKey(text);
  } catch (cause) {
    throw new Error("the key cannot be read", { cause });
  }
}
