/**
 * After the build: each file once more as gzip and Brotli, so that the console compresses nothing while it serves.
 * What would not get smaller has no such twin.
 */
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const folder = process.argv[2] ?? "dist/app";
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  // the page itself changes with every answer
  if (!entry.isFile() || entry.name === "index.html") continue;
  // Node 18.19 knows it by its older name alone
  const path = join(entry.parentPath ?? entry.path, entry.name);
  const plain = readFileSync(path);
  const twins = [
    ["gz", gzipSync(plain, { level: 9 })],
    ["br", brotliCompressSync(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length } })],
  ];
  for (const [end, packed] of twins) {
    if (packed.length < plain.length) writeFileSync(`${path}.${end}`, packed);
  }
}
