/** The page /openapi/api, made from openapi.json. */
import { renderOpenApi } from "../../../docs/openapi.ts";
import openapi from "../../../openapi.json" with { type: "json" };

const content = `# API\n\nEvery operation, from [openapi.json](../openapi.json).\n\n${renderOpenApi(openapi)}`;

export default { paths: () => [{ params: { page: "api" }, content }] };
