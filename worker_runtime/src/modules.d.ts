/** Modules that are not TypeScript: `build.mjs` says how each is bundled or left for the upload. */

declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "*/config.json" {
  const text: string;
  export default text;
}

declare module "*.html" {
  const text: string;
  export default text;
}
