import { describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { getVariables, SERVE_SETTINGS } from "../../src/config/settings.ts";

interface Container {
  readonly envFrom: unknown;
  readonly env: readonly { readonly name: string }[];
  readonly securityContext: unknown;
}

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly spec: {
    readonly template?: {
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly containers: readonly Container[];
      };
    };
  };
}

interface Kustomization {
  readonly resources: readonly string[];
  readonly configMapGenerator: readonly { readonly literals: readonly string[] }[];
}

interface Model {
  validate(): void;
}

/** Returns the object that kubernetes-models makes of a manifest. Its `validate` uses the schemas of Kubernetes. */
async function modelOf(manifest: Manifest): Promise<Model> {
  const { apiVersion, kind } = manifest;
  const path = apiVersion === "v1" ? "v1" : apiVersion;
  const { [kind]: Model }: Record<string, new (data: Manifest) => Model> = await import(
    `kubernetes-models/${path}/${kind}`
  );
  if (Model === undefined) throw new Error(`no schema of ${kind}`);
  return new Model(manifest);
}

const read = async (path: string): Promise<string> => readFile(new URL(path, import.meta.url), "utf8");

async function readManifests(folder: string): Promise<readonly Manifest[]> {
  const documents: unknown = Bun.YAML.parse(await read(`${folder}/todo-service.yaml`));
  return JSON.parse(JSON.stringify(documents));
}

describe.each([
  ["sqlite", ["Service", "StatefulSet", "NetworkPolicy"]],
  ["postgresql", ["Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"]],
])("the manifests of %s", (folder, kinds) => {
  test("fulfill the schemas of Kubernetes", async () => {
    const manifests = await readManifests(folder);
    expect(manifests.map(({ kind }) => kind)).toEqual(kinds);
    for (const manifest of manifests) (await modelOf(manifest)).validate();
  });

  test("run with a read-only root and without rights, and have time to stop", async () => {
    const kustomization: Kustomization = JSON.parse(
      JSON.stringify(Bun.YAML.parse(await read(`${folder}/kustomization.yaml`))),
    );
    expect(kustomization.resources).toEqual(["todo-service.yaml"]);
    const literals = Object.fromEntries(
      (kustomization.configMapGenerator[0]?.literals ?? []).map((literal) => literal.split("=")),
    );
    const pods = (await readManifests(folder)).flatMap(({ spec }) => spec.template?.spec ?? []);
    expect(pods).toHaveLength(1);
    for (const { terminationGracePeriodSeconds, containers } of pods) {
      expect(terminationGracePeriodSeconds).toBeGreaterThanOrEqual(Number(literals.TODO_STOP_DELAY) + 10);
      for (const { env, envFrom, securityContext } of containers) {
        expect(envFrom).toEqual([{ configMapRef: { name: "todo-service" } }]);
        expect(securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
        const known: readonly string[] = SERVE_SETTINGS.flatMap(getVariables);
        for (const name of [...Object.keys(literals), ...env.map(({ name }) => name)])
          expect(known).toContain(name);
      }
    }
  });
});

test("a manifest with a mistake does not fulfill the schemas of Kubernetes", async () => {
  const wrong = { apiVersion: "apps/v1", kind: "Deployment", spec: { replicas: "three" } };
  const model = await modelOf(JSON.parse(JSON.stringify(wrong)));
  expect(() => model.validate()).toThrow();
});
