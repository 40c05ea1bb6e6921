/**
 * Makes `src/api/openapi.json` anew from a console that runs (its address as argument): the app's types come from it.
 * Operations of the runners' own protocol are none of the app's business.
 */
import { writeFileSync } from "node:fs";

const url = process.argv[2] ?? "http://127.0.0.1:8420";
const description = await (await fetch(`${url}/api/v1/openapi.json`)).json();
description.paths = Object.fromEntries(Object.entries(description.paths).filter(([path]) => path.startsWith("/api/")));
writeFileSync("src/api/openapi.json", `${JSON.stringify(description, null, 1)}\n`);
