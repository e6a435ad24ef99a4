import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { output } from "./command.ts";

interface Component {
  readonly name: string;
  readonly "bom-ref": string;
  readonly properties?: readonly { readonly name: string; readonly value: string }[];
}

/** The parts of a CycloneDX document that this script changes. */
interface Sbom {
  readonly serialNumber: string;
  readonly metadata: { readonly timestamp: string; readonly component: { readonly name: string } };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * Returns a software bill of materials in CycloneDX 1.5: the packages that are installed with the service.
 * The same commit gives the same text.
 * @param root a folder with package.json and package-lock.json
 * @param date the date of the commit, in ISO 8601
 */
export function createSbom(root: string, date: string): string {
  const text = output(root, "npm", "sbom", "--sbom-format=cyclonedx", "--package-lock-only");
  const sbom: Sbom = JSON.parse(text);
  const components = sbom.components.filter((component) => !isForDevelopment(component));
  const shipped = new Set(components.map((component) => component["bom-ref"]));
  const isDependent = (ref: string): boolean =>
    shipped.has(ref) || !sbom.components.some((c) => c["bom-ref"] === ref);
  const dependencies = sbom.dependencies
    .filter(({ ref }) => isDependent(ref))
    .map((dependency) => ({
      ...dependency,
      dependsOn: dependency.dependsOn.filter((ref) => shipped.has(ref)),
    }));
  const { name }: { readonly name: string } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  // npm names the component after the folder of the clone.
  const metadata = { ...sbom.metadata, timestamp: date, component: { ...sbom.metadata.component, name } };
  const contents = { ...sbom, metadata, components, dependencies };
  const serialNumber = `urn:uuid:${uuidOf(JSON.stringify({ ...contents, serialNumber: "" }))}`;
  return `${JSON.stringify({ ...contents, serialNumber }, null, 2)}\n`;
}

const isForDevelopment = ({ properties = [] }: Component): boolean =>
  properties.some((property) => property.name === "cdx:npm:package:development" && property.value === "true");

/** Returns a UUID of version 8 (RFC 9562 §5.8) that depends on the text only. */
function uuidOf(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  const groups = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`];
  return [...groups, hex.slice(20, 32)].join("-");
}
