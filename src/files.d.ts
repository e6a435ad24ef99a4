/** The path of a compressed file, in the sources or in an executable. */
declare module "*.br" {
  const path: string;
  export default path;
}

/** The text of an SQL file, in the sources or in an executable. */
declare module "*.sql" {
  const text: string;
  export default text;
}
