import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";

const NODE = Object.fromEntries(
  [
    "AbortController", "Blob", "Buffer", "DOMException", "Event", "EventTarget", "URL", "document", "history", "location",
    "performance", "process", "sessionStorage", "setImmediate", "setTimeout",
  ].map((name) => [name, "readonly"]),
);

const PAGE = Object.fromEntries(
  [
    "Audio", "AudioContext", "Event", "KeyboardEvent", "MediaStream", "clearInterval", "document", "fetch", "navigator", "performance",
    "setInterval", "setTimeout", "window",
  ].map((name) => [name, "readonly"]),
);

export default defineConfig([
  globalIgnores([".*/", "models-cache/", "out/", "build/", "dist/", "parley/"]),
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "default-case-last": "error",
      eqeqeq: "error",
      "no-implicit-globals": "error",
      "no-shadow": "error",
      "no-unused-vars": "error",
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  {
    files: ["web/**/*.js"],
    // The type checker reports unknown names, and it knows those of a browser.
    rules: { "no-undef": "off" },
  },
  { files: ["tests/web/**/*.js", "*.js"], languageOptions: { globals: NODE } },
  // Modules that are bundled into pages, and not part of what the type checker reads.
  { files: ["tests/peers/foreign/pages/*.mjs"], languageOptions: { globals: PAGE } },
  // Programs that run in Node.js by themselves.
  {
    files: ["tests/peers/**/*.cjs"],
    languageOptions: { globals: { ...NODE, clearTimeout: "readonly", console: "readonly" } },
  },
]);
