/** Programs that some tests need, each with the version that these tests were last checked with (Debian 12). */
const TOOLS = {
  WebKitWebDriver: "2.50.6 (WebKitGTK)",
  Xvfb: "21.1.7 (X.Org)",
  caddy: "2.6.2",
  chromium: "154",
  curl: "7.88.1",
  "firefox-esr": "153",
  git: "2.39.5",
  go: "1.19.8",
  haproxy: "2.6.12",
  htpasswd: "2.4.71 (Apache)",
  mmdebstrap: "1.3.5",
  nginx: "1.22.1",
  openssl: "3.0.22",
  perl: "5.36.0",
  pgbouncer: "1.18.0",
  promtool: "2.42.0 (Prometheus)",
  python3: "3.11.7",
  script: "2.38.1 (util-linux)",
  slowhttptest: "1.8.2",
  slirp4netns: "1.2.0",
  strace: "6.1",
  "systemd-analyze": "252",
  "systemd-nspawn": "252",
  testssl: "3.0.8",
} as const;

export type Tool = keyof typeof TOOLS;

export const isTool = (name: string): name is Tool => Object.hasOwn(TOOLS, name);

export function whyMissing(tool: Tool): string | undefined {
  return Bun.which(tool) === null ? reasonAgainst(tool, "is not installed") : undefined;
}

export function reasonAgainst(tool: Tool, complaint: string): string {
  return `${tool} ${complaint}; checked with ${TOOLS[tool]}`;
}
