import { join } from "node:path";
import tseslint from "typescript-eslint";

const projects = ["tsconfig.json", "tsconfig.test.json"];

export default tseslint.config(
  { ignores: ["**/dist", "**/target", "**/tests/types", "**/eslint.config.js"] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: { parserOptions: { project: projects.map((name) => join(import.meta.dirname, name)) } },
    rules: {
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["test", "describe"] }] },
      ],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  // Types in comments do not reach this rule.
  { files: ["**/*.js"], rules: { "@typescript-eslint/no-unsafe-assignment": "off" } },
);
