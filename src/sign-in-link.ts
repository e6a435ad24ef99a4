import { encode, renderUnicodeCompact } from "uqr";

const OPTIONS = { border: 2 };

/** Returns the link with which a browser signs in. Browsers do not send the part after `#`. */
export const formatLink = (origin: string, code: string): string => `${origin}/#sign-in=${code}`;

/**
 * Returns a QR code for an SVG with a `viewBox` of this size: the number of modules in each row and column, with a margin
 * of 2, and the dark modules as a path, one unit per module.
 */
export function encodeQrCode(text: string) {
  const { size, data } = encode(text, OPTIONS);
  const path = data
    .flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])))
    .join("");
  return { size, path };
}

/** Returns a QR code for a terminal, with the light modules drawn, as terminals are usually dark. */
export const renderQrCode = (text: string): string => `${renderUnicodeCompact(text, OPTIONS)}\n`;
