/** The page at `/`: self-contained, so that it works wherever the Worker is mounted. */

import type { WorkerConfig } from "./config";
import template from "./page.html";

const ESCAPES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escape = (text: string): string => text.replace(/[&<>"']/g, (char) => ESCAPES[char] as string);

const HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "cache-control": "no-cache",
  "content-security-policy":
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function page(config: WorkerConfig): Response {
  const values: Readonly<Record<string, string>> = {
    name: config.name,
    task: capitalised(config.defaultShard.artifact.task.type.replaceAll("-", " ")),
  };
  const html = template.replace(/\{\{(\w+)\}\}/g, (_, key: string) => escape(values[key] ?? ""));
  return new Response(html, { headers: HEADERS });
}
