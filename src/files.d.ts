/** The text of an SQL file, in the sources or in an executable. */
declare module "*.sql" {
  const text: string;
  export default text;
}
