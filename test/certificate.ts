import { createPublicKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";

const DAY = 24 * 3_600_000;
const ECDSA_WITH_SHA256 = "2a8648ce3d040302";
const RSA_WITH_SHA256 = "2a864886f70d01010b";

export interface CertificateOptions {
  /** Milliseconds since 1970; by default an hour ago. */
  readonly notBefore?: number;
  /** Milliseconds since 1970; by default in 90 days. */
  readonly notAfter?: number;
  /** With this, the key is an RSA key of this many bits. Without it, the key is on the curve P-256. */
  readonly rsaBits?: number;
  /** Whether the certificate is for 127.0.0.1 and ::1, too, which it is by default. */
  readonly hasAddresses?: boolean;
}

/** Makes a self-signed certificate for localhost. Returns it and its key as PEM (RFC 5280). */
export function makeCertificate(options: CertificateOptions = {}): { cert: string; key: string } {
  const { notBefore = Date.now() - DAY / 24, notAfter = Date.now() + 90 * DAY } = options;
  const { rsaBits, hasAddresses = true } = options;
  const { privateKey } =
    rsaBits === undefined
      ? generateKeyPairSync("ec", { namedCurve: "P-256" })
      : generateKeyPairSync("rsa", { modulusLength: rsaBits });
  const publicKey = createPublicKey(privateKey).export({ type: "spki", format: "der" });
  const algorithm =
    rsaBits === undefined ? der(0x30, oid(ECDSA_WITH_SHA256)) : der(0x30, oid(RSA_WITH_SHA256), der(0x05));
  const name = der(0x30, der(0x31, der(0x30, oid("550403"), der(0x0c, Buffer.from("localhost")))));
  const alternatives = der(
    0x30,
    der(0x82, Buffer.from("localhost")),
    ...(hasAddresses ? ["7f000001", "00000000000000000000000000000001"] : []).map((address) =>
      der(0x87, Buffer.from(address, "hex")),
    ),
  );
  const authority = der(0x30, der(0x01, Buffer.from([0xff])));
  const body = der(
    0x30,
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    name,
    der(0x30, time(notBefore), time(notAfter)),
    name,
    publicKey,
    der(0xa3, der(0x30, extension("551d11", alternatives), extension("551d13", authority))),
  );
  const signature = Buffer.concat([Buffer.from([0]), sign("sha256", body, privateKey)]);
  const cert = der(0x30, body, algorithm, der(0x03, signature)).toString("base64");
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${cert.replace(/.{64}/g, "$&\n")}\n-----END CERTIFICATE-----\n`,
    key: String(privateKey.export({ type: "pkcs8", format: "pem" })),
  };
}

/** Writes a certificate and its key to files in a folder, in place of those from before. */
export function certificateIn(folder: string, certificate = makeCertificate()) {
  const [certFile, keyFile] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  writeFileSync(certFile, certificate.cert);
  writeFileSync(keyFile, certificate.key);
  return {
    cert: certificate.cert,
    certFile,
    options: ["--tls-cert", certFile, "--tls-key", keyFile],
  };
}

/** Returns a DER value: tag, length, content (X.690 §8.1). */
function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  const { length } = content;
  const head =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...head]), content]);
}

const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, "hex"));

const extension = (id: string, value: Uint8Array): Buffer => der(0x30, oid(id), der(0x04, value));

/** Returns a UTCTime: YYMMDDHHMMSSZ. */
const time = (ms: number): Buffer =>
  der(0x17, Buffer.from(`${new Date(ms).toISOString().slice(2, 19).replace(/\D/g, "")}Z`));

/** Returns the certificate that a new connection to a port receives, as base64 of its DER encoding. */
export function shownAt(port: number): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false });
  socket.on("error", reject);
  socket.on("secureConnect", () => {
    resolve(socket.getPeerCertificate().raw.toString("base64"));
    socket.destroy();
  });
  return promise;
}
