/** How the app is built: everything hashed and in files of its own, because the console's policy forbids anything inline. */
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "dist/app",
    target: "es2022",
    // `light-dark()` stays what it is
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    chunkSizeWarningLimit: 900,
  },
  server: { proxy: { "/api": "http://127.0.0.1:8420" } },
  test: { include: ["src/**/*.test.{ts,tsx}"], environment: "node" },
});
