/** The pages whose commands the fast suite runs. The system suite runs those of all others. */
export const FAST_PAGES: readonly string[] = [
  "README.md",
  "docs/tutorials/first-steps.md",
  "docs/how-to/api-keys.md",
  "docs/how-to/private-mode.md",
  "docs/how-to/use-it-in-tests.md",
  "docs/explanation/how-the-checks-work.md",
];
