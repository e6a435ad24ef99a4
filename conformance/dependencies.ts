/** The rules that each case relies on. When one of them fails, a failure of the case shows nothing new. */
import type { RuleId } from "./rules.ts";

export const dependencies: Readonly<Partial<Record<RuleId, readonly RuleId[]>>> = {
  // The bearer check
  "whoami.name": ["whoami.200", "whoami.text"],
  "whoami.text": ["whoami.200"],
  "client.request": ["whoami.200", "bearer.unknown.401"],
  "bearer.missing.challenge": ["bearer.missing.401"],
  "bearer.unknown.401": ["bearer.missing.401"],
  "bearer.unknown.challenge": ["bearer.unknown.401", "bearer.missing.challenge"],
  "bearer.near-miss.401": ["bearer.unknown.401", "bearer.unknown.challenge"],
  "bearer.scheme.401": ["bearer.unknown.401", "bearer.unknown.challenge", "bearer.missing.challenge"],
  "bearer.empty.401": ["bearer.unknown.401", "bearer.unknown.challenge", "bearer.missing.challenge"],
  "bearer.refused.no-name": ["whoami.200", "bearer.missing.401", "bearer.unknown.401", "bearer.scheme.401"],
  "bearer.router": ["bearer.missing.401", "bearer.unknown.401"],

  // The Basic check
  "admin.greeting": ["admin.200", "admin.text"],
  "admin.text": ["admin.200"],
  "basicuser.request": ["admin.200", "basic.missing.refused"],
  "basic.malformed.refused": ["basic.missing.refused"],
  "basic.password.refused": ["basic.malformed.refused"],
  "basic.user.refused": ["basic.malformed.refused"],
  "basic.scheme.refused": ["basic.malformed.refused"],
  "basic.refused.no-greeting": ["admin.200", "basic.missing.refused", "basic.password.refused"],
  "basic.router": ["basic.missing.refused", "basic.malformed.refused"],
};
