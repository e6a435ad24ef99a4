/** A compressed file beside the sources, in an executable too: its path. */
declare module "*.br" {
  const path: string;
  export default path;
}
