/** Path parameters: integers of the whole range, and texts that are not unsigned 64-bit integers. */

/** Ids that no to-do has: far above the latest one, at the limits of types, and 0. `{}` is the id of a to-do. */
export const ABSENT = [
  ...[
    "0",
    "{+4294967296}",
    "{+1000000000000}",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "{}0000000000000",
  ],
  ...[
    "9223372036854775807",
    "9223372036854775808",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551614",
  ],
];

/** Texts of which no reading is an id. Those with `{}` contain an id, to find parsers that ignore the rest. */
export const MALFORMED = [
  ..."abc -{} {}.0 {}.5 {}e0 {}e1 0x{x} {}abc abc{} {}_0 {},0 {},{} %20 {}%20 %20{} NaN Infinity true null".split(
    " ",
  ),
  ..."undefined %C3%A9 %D9%A1 %C2%B2 %EF%BC%91 {}%00 %00{} %00 {}%0A %0A{} {}%09 {}%0D%0A {}%C2%A0 {}- {}+ --{}".split(
    " ",
  ),
  ..."{}%20{} %22{}%22 '{}' ({}) [{}] {}n {}L {}f {}d {}u {}%25 {}: {}; {};{} {}=1 {}& {}* * ~ _ - 0b1 0o1 {}%E2%80%8B".split(
    " ",
  ),
  ..."{}%EF%BB%BF {}%C2%AD {}%7F {}~ {}a a {}.json id={} latest first all new 1e3 -1 -9223372036854775808 1.0 title".split(
    " ",
  ),
  ..."%F0%9D%9F%8F %E1%81%81 {}%2C{} {}%7C1 {}%60 {}| {}%3F {}%23 -0.0 +".split(" "),
  ...["18446744073709551616", "{+18446744073709551616}", "{+36893488147419103232}", "36893488147419103232"],
  ...["99999999999999999999", "340282366920938463463374607431768211456", "1".repeat(100)],
];
