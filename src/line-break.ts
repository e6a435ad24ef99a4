/** What ends a line for Unicode, and for editors that keep such characters. */
export const LINE_BREAK = /\r\n|[\n\v\f\r\x85\u2028\u2029]/;
