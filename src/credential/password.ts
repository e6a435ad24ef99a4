import { Failure } from "../failure.ts";
import type { VerifyPassword } from "./user.ts";

const AT_ONCE = 2;
const WAITING_MOST = 64;
/** A quarter of a second. */
const BCRYPT_COST = 12;

/**
 * Verifies bcrypt and argon2id hashes off the event loop, two at a time. What does not fit the queue fails
 * with `credentials_unavailable`: a flood of logins must not take the memory or the cores of everyone else.
 */
export function passwordVerifier(): VerifyPassword {
  const waiting: (() => void)[] = [];
  let running = 0;

  return async (password, passwordHash) => {
    if (running >= AT_ONCE) {
      if (waiting.length >= WAITING_MOST) {
        throw new Failure("credentials_unavailable", { detail: "Too many passwords are being checked." });
      }
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.push(resolve);
      await promise;
    } else {
      running++;
    }
    try {
      return await Bun.password.verify(password, passwordHash);
    } finally {
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}

/** A bcrypt hash, with the prefix that Apache's htpasswd writes and every Apache verifies. */
export async function hashPassword(password: string): Promise<string> {
  const hash = await Bun.password.hash(password, { algorithm: "bcrypt", cost: BCRYPT_COST });
  return hash.replace(/^\$2b\$/, () => "$2y$");
}
