import { expect, test } from "bun:test";
import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { makeCertificate } from "../../../test/certificate.ts";
import { parseCertificate, validityError } from "./tls.ts";

const { cert, key } = makeCertificate({ notBefore: Date.UTC(2026, 0, 1), notAfter: Date.UTC(2026, 3, 1) });
const other = makeCertificate();
const SHORT = makeCertificate({ rsaBits: 1024 });
const BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

test("parseCertificate returns both texts and the validity period", () => {
  expect(parseCertificate(cert, key)).toEqual({
    cert,
    key,
    notBefore: new Date("2026-01-01T00:00:00Z"),
    notAfter: new Date("2026-04-01T00:00:00Z"),
  });
});

test("parseCertificate skips byte order marks and text around the blocks", () => {
  const chain = `\uFEFFsubject=localhost\n${cert}\nissuer \xe9\n\uFEFF${other.cert}end`;
  expect(parseCertificate(chain, `\uFEFF${key}`)).toMatchObject({ cert: cert + other.cert, key });
});

test("parseCertificate also accepts a key in the SEC 1 format", () => {
  const older = String(createPrivateKey(key).export({ type: "sec1", format: "pem" }));
  expect(older).toContain("EC PRIVATE KEY");
  expect(parseCertificate(cert, older).key).toBe(older);
});

const NO_CERTIFICATE = "the certificate is not PEM (-----BEGIN CERTIFICATE-----)";
const NO_KEY = "the key is not PEM (-----BEGIN PRIVATE KEY-----)";
const PASSPHRASE = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "secret" } as const;
const ENCRYPTED = String(generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export(PASSPHRASE));

test.each([
  ["a key of another certificate", cert, other.key, "the key does not match the certificate"],
  ["an empty certificate", "", key, NO_CERTIFICATE],
  ["a key in place of the certificate", key, key, NO_CERTIFICATE],
  ["an incomplete certificate", cert.slice(0, 200), key, NO_CERTIFICATE],
  ["a broken certificate", BROKEN, key, "the certificate cannot be read"],
  ["a broken chain", cert + BROKEN, key, "the certificate cannot be read"],
  ["an empty key", cert, "", NO_KEY],
  ["a certificate in place of the key", cert, cert, NO_KEY],
  ["a key that is too short", SHORT.cert, SHORT.key, "the key is too short: RSA needs at least 2048 bits"],
  ["an incomplete key", cert, key.slice(0, 80), "the key cannot be read"],
  ["a key with a passphrase", cert, ENCRYPTED, "the key is encrypted: store it without a passphrase"],
])("parseCertificate rejects %s", (_what, certText, keyText, expected) => {
  expect(() => parseCertificate(certText, keyText)).toThrow(new Error(expected));
});

test("validityError returns the reason why clients reject the certificate", () => {
  const certificate = parseCertificate(cert, key);
  expect(validityError(certificate, Date.UTC(2025, 11, 31))).toBe("it is not valid yet");
  // The period includes both its ends (RFC 5280 §4.1.2.5).
  for (const now of [Date.UTC(2026, 0, 1), Date.UTC(2026, 3, 1)])
    expect(validityError(certificate, now)).toBe(undefined);
  expect(validityError(certificate, Date.UTC(2026, 3, 2))).toBe("it has expired");
});
