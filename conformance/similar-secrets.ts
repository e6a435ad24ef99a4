/**
 * Returns secrets that differ slightly from this one, to find comparisons that skip a part of it. Each has a note that
 * follows "the token" or "the password".
 */
export function similarSecrets(secret: string): [note: string, secret: string][] {
  const other = (character: string) => (character === "a" ? "b" : "a");
  const swapped = secret.replace(/[a-z]/gi, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  );
  const all: [string, string][] = [
    ["with its first character changed", other(secret.slice(0, 1)) + secret.slice(1)],
    ["with its last character changed", secret.slice(0, -1) + other(secret.slice(-1))],
    ["without its last character", secret.slice(0, -1)],
    ["and a colon and one more character", `${secret}:x`],
    ["with upper and lower case swapped", swapped],
  ];
  return all.filter(([, similar]) => similar !== secret && similar !== "");
}
