import { beforeAll, describe } from "bun:test";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { serveFolder, whyNoBrowser } from "../../test/chromium.ts";
import { remote, testClient } from "../../test/client-suite.ts";
import { useBrowser } from "../../test/page.ts";
import { skipFor } from "../../test/skip.ts";
import { temporaryFolder } from "../../test/temporary.ts";

describe.skipIf(skipFor(whyNoBrowser))("in a real browser", () => {
  const folder = temporaryFolder();
  const browser = useBrowser();
  beforeAll(async () => {
    for (const module of ["./client.ts", "../../test/sdk-suite.ts"]) {
      const entrypoints = [fileURLToPath(new URL(module, import.meta.url))];
      await Bun.build({ entrypoints, outdir: folder, target: "browser", format: "esm" });
    }
    await Bun.write(join(folder, "index.html"), "<!doctype html>");
  });

  const inChromium = remote(async (call, args) => {
    await using site = serveFolder(folder);
    const page = await browser.newPage();
    await page.goto(site.url);
    return await page.evaluate(`(async () => {
      const sdk = await import("/client.js");
      const { ${call} } = await import("/sdk-suite.js");
      return JSON.stringify(await ${call}(sdk, ...${JSON.stringify(args)}));
    })()`);
  });
  testClient("Chromium", inChromium);
});
